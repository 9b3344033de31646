"""How a request becomes resources: requests, workers, the service, the result cache.

The only floor that imports Triton (`triton_front`, in worker processes; `capture` beside it hooks into the Triton of a
script). Everything else here stays importable without Triton. May import `loading` and the floors below.
"""
