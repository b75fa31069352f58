// The plan as JSON: snake_case names that end in their units. The schema is part of docs/planning.md; names are only ever added.

import type { Evaluation } from '../plan/evaluate.ts';
import type { PlanInput, PlanResult } from '../plan/plan.ts';
import { kvBytesOfSequence, kvBytesPerToken, kvFormula } from '../sim/cost/kv-memory.ts';
import { totalWeightBytes } from '../sim/cost/memory-ledger.ts';
import type { Distribution } from '../workload/streaming-distribution.ts';

export function planJson(result: PlanResult, input: PlanInput) {
  const { resolved, lengths } = result;
  const { deployment, ledger, found, kvDtype, weightDtype, tensorParallelSize, pipelineParallelSize } = resolved;
  const { flags } = deployment;
  const kv = { kvDtype, tensorParallelSize };
  return {
    deployment: deployment.name,
    model: found.shape.name,
    gpu: resolved.gpu?.name ?? null,
    num_gpus: resolved.numGpus,
    tensor_parallel_size: tensorParallelSize,
    pipeline_parallel_size: pipelineParallelSize,
    num_replicas: deployment.numReplicas,
    parameters: found.shape.numParameters,
    active_parameters: found.shape.numActiveParameters,
    weight_dtype: weightDtype,
    weight_bytes: totalWeightBytes(found.shape, weightDtype),
    memory_per_gpu: {
      total_bytes: ledger.totalBytes,
      gpu_memory_utilization: ledger.utilization,
      reserved_bytes: ledger.reservedBytes,
      weight_bytes: ledger.weightBytes,
      activation_bytes: ledger.activationBytes,
      communication_bytes: ledger.communicationBytes,
      runtime_bytes: ledger.runtimeBytes,
      cuda_graph_bytes: ledger.graphBytes,
      kv_pool_bytes: ledger.kvPoolBytes,
      kv_pool_is_given: ledger.isPoolGiven,
    },
    kv_cache_dtype: kvDtype,
    kv_bytes_per_token: kvBytesPerToken(found.shape, kv),
    kv_formula: kvFormula(found.shape, kv),
    kv_block_size: flags.blockSize,
    kv_bytes_per_block: ledger.blockBytes,
    kv_group_windows: ledger.groupWindows,
    num_kv_blocks: ledger.numBlocks,
    kv_tokens: ledger.kvTokens,
    max_model_len: flags.maxModelLen,
    kv_bytes_per_full_request: kvBytesOfSequence(found.shape, flags.maxModelLen, kv),
    max_num_seqs: flags.maxNumSeqs,
    max_num_batched_tokens: flags.maxNumBatchedTokens,
    starts: result.problem === null,
    problem: result.problem,
    lengths:
      lengths === null
        ? null
        : {
            mean_prompt_tokens: lengths.meanPromptTokens,
            mean_output_tokens: lengths.meanOutputTokens,
            p99_tokens: lengths.p99Tokens,
            max_tokens: lengths.maxTokens,
          },
    capacity:
      result.capacity?.map((row) => ({
        name: row.name,
        tokens: row.numTokens,
        block_size: row.blockSize,
        requests: row.numRequests,
      })) ?? null,
    targets: {
      percentile: input.percentile,
      ttft_seconds: input.targets.ttftSeconds,
      tpot_seconds: input.targets.tpotSeconds,
      e2e_seconds: input.targets.e2eSeconds,
    },
    predicted: result.evaluation === null ? null : evaluationJson(result.evaluation),
    binding: result.binding,
    is_met: result.isMet,
    cheapest: result.cheapest.map(evaluationJson),
    pareto: result.pareto.map(evaluationJson),
    fragmentation: result.fragmentation.map(({ policy, shares, meanRunning }) => ({
      policy,
      token_share: shares.tokens,
      reserved_share: shares.reserved,
      internal_share: shares.internal,
      external_share: shares.external,
      mean_running: meanRunning,
    })),
    num_configurations_tried: result.searched.length,
    changes: result.changes,
    commands: { vllm: result.commands.vllm, pagoda: result.commands.pagoda, notes: result.commands.notes },
    notes: resolved.notes,
  };
}

function evaluationJson(evaluation: Evaluation) {
  const { summary, scheduler, request } = evaluation;
  return {
    deployment: evaluation.name,
    num_gpus: evaluation.numGpus,
    tensor_parallel_size: request.tensorParallelSize ?? 1,
    max_num_seqs: request.maxNumSeqs ?? null,
    max_num_batched_tokens: request.maxNumBatchedTokens ?? null,
    gpu_memory_utilization: request.gpuMemoryUtilization ?? null,
    kv_cache_dtype: request.kvCacheDtype ?? null,
    problem: evaluation.problem,
    is_met: evaluation.isMet,
    ttft_seconds: summary === null ? null : spread(summary.ttftSeconds),
    tpot_seconds: summary === null ? null : spread(summary.tpotSeconds),
    e2e_seconds: summary === null ? null : spread(summary.e2eSeconds),
    output_tokens_per_second: summary?.outputTokensPerSecond ?? null,
    requests_per_second: summary?.requestsPerSecond ?? null,
    output_tokens_per_second_per_gpu: evaluation.tokensPerSecondPerGpu,
    output_tokens_per_second_per_user: evaluation.tokensPerSecondPerUser,
    max_requests_per_second: evaluation.maxRequestsPerSecond,
    num_preemptions: scheduler?.numPreemptions ?? null,
    max_kv_usage_share: scheduler?.maxKvUsage ?? null,
    decode_step: evaluation.decodeStep === null ? null : snakeCase(evaluation.decodeStep),
  };
}

function snakeCase(parts: object): Record<string, number> {
  return Object.fromEntries(
    Object.entries(parts).map(([key, value]) => [
      key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
      Number(value),
    ]),
  );
}

function spread({ mean, p50, p90, p95, p99, max }: Distribution) {
  return { mean, p50, p90, p95, p99, max };
}
