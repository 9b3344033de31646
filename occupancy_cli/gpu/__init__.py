"""GPUs: what each is made of, with the source of every number.

`profiles` reads `hw_profiles/*.yaml`, `sm_rates` has the rates of an SM that the model takes. The lowest floor: imports
`errors` and `data_files` alone; everything may import it.
"""
