"""Running a kernel file safely: absent packages, the GPU that it asks about, what it read.

- `module_loading` imports a kernel's module, plainly or with `stand_ins` that `absent_modules` and `lazy_packages` put
  where something is missing;
- `target_gpu` has the one answer to each question about the device, `device_doors` opens the doors to it: what PyTorch
  (`torch_answers`), NVIDIA's packages (`nvidia_answers`), `triton.testing` (`triton_answers`) and the environment say;
- `odd_names` gives files that no compiler can name printable names;
- `outside_reads` records what a load looked at, as `outside_facts`: events (`outside_events`), watched functions
  (`watched_functions`, `watched_environment`, `watched_imports`), whose look it is (`outside_callers`), and what came
  of it (`outside_recordings`).

Runs in worker processes and in captured scripts; must stay importable without Triton. May import the floors below,
never `compile`.
"""
