"""How a request becomes resources: workers, result cache, Triton.

`triton_front` is the only module of the tool that imports Triton, and it runs in worker processes; everything else
here must stay importable without Triton. May import `model`, `readers`, `intake` and `errors`; never rich, typer or
torch.
"""
