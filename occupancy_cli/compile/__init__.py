"""How a request becomes resources: workers, result cache, Triton, the cubin.

`triton_front` is the only module of the tool that imports Triton, and it runs in worker processes; everything else
here must stay importable without Triton. May import `model`, `intake` and `errors`; never rich, typer or torch.
"""
