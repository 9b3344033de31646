#!/bin/sh
# A kernel file whose imports are not installed: the module is loaded with stand-ins, and the report names them.
exec occupancy analyze "$(dirname "$0")/decode_attention.py:decode_kernel" "$@" \
  --arg 'query_ptr=*bf16' --arg 'kv_ptr=*bf16' --arg 'out_ptr=*bf16' --arg 'scale=fp32' \
  --arg 'tokens=i32=4096' --arg 'head_dim=i32=128' --arg 'stride_query=i32=128' --arg 'stride_kv=i32=128' \
  --set BLOCK_H=16 --set BLOCK_D=128 --grid '8,4'
