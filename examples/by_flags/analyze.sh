#!/bin/sh
# A launch of 40 arguments without a spec: types and values by --arg, constexprs and launch options by --set.
# What is left out is listed by the tool, all of it, as the flags to add.
exec occupancy analyze "$(dirname "$0")/attention.py:paged_attention" "$@" \
  --arg 'out_ptr=*bf16' --arg 'query_ptr=*bf16' \
  --arg 'key_cache_ptr=*fp8e4nv' --arg 'value_cache_ptr=*fp8e4nv' \
  --arg 'key_scale_ptr=*fp32@4' --arg 'value_scale_ptr=*fp32@4' \
  --arg 'sinks_ptr=*fp32' --arg 'alibi_slopes_ptr=none' \
  --arg 'block_tables_ptr=*i32' --arg 'seq_lens_ptr=*i32@4' --arg 'query_starts_ptr=*i32@4' \
  --arg 'softmax_scale=fp32=0.08838' --arg 'softcap=fp32=0' \
  --arg 'num_seqs=i32=80' --arg 'max_blocks=i32=512' \
  --arg 'stride_out_token=i64=8192' --arg 'stride_out_head=i64=128' \
  --arg 'stride_query_token=i64=8192' --arg 'stride_query_head=i64=128' \
  --arg 'stride_key_block=i64=16384' --arg 'stride_key_slot=i64=1024' --arg 'stride_key_head=i64=128' \
  --arg 'stride_value_block=i64=16384' --arg 'stride_value_slot=i64=1024' --arg 'stride_value_head=i64=128' \
  --arg 'stride_tables=i64=512' \
  --set NUM_QUERY_HEADS=64 --set GROUP=8 --set GROUP_PADDED=16 --set HEAD_SIZE=128 --set HEAD_SIZE_PADDED=128 \
  --set PAGE_SIZE=16 --set WINDOW=0 \
  --set USE_SINKS=true --set USE_ALIBI=false --set USE_SOFTCAP=false --set USE_SCALES=true --set CAUSAL=true \
  --set PRECISION=ieee --set EVICTION=evict_first \
  --set num_warps=4 --set num_stages=1,2,3 \
  --grid 'num_seqs,NUM_QUERY_HEADS // GROUP'
