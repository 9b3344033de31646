"""How a request becomes resources: requests, workers, the service, the result cache.

The only floor that imports Triton, in worker processes: `triton_front` and what it is made of (`target_driver`,
`kernel_layers`, `shared_allocation`, `gluon_layouts`), with `triton_internals` as the table of what they rely on, for
`capture` too, which hooks into the Triton of a script. Everything else here stays importable without Triton. May import
`loading` and the floors below.
"""
