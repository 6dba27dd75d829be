#!/usr/bin/env bash
# The scripts of deploy/slurm on a cluster of two virtual nodes that this test starts on this machine: a model of two
# ranks answers, and after scancel nothing is left. Not part of the gate: needs root and Debian's packages slurm-wlm and
# libpmix-dev.  usage: slurm.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
. tools/skips.sh
[ "$(id -u)" = 0 ] || { skip slurm "slurmd needs root"; exit 0; }
for program in slurmctld slurmd srun sbatch scontrol; do
  command -v $program >/dev/null || { skip slurm "no $program: apt-get install slurm-wlm"; exit 0; }
done
ldconfig -p | grep 'libpmix\.so ' >/dev/null || { skip slurm "no libpmix.so, which slurm's pmix plugin opens: apt-get install libpmix-dev"; exit 0; }

work=$(mktemp -d "${TMPDIR:-/tmp}/nereid-slurm-XXXXXX")
export SLURM_CONF=$work/slurm.conf
export NEREID=$build/bin/nereid NEREID_CACHE_DIR=$build/e2e/cache

fail() { echo "slurm: FAILED: $*" >&2; exit 1; }
free_ports() {
  python3 -c 'import socket, sys
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*[s.getsockname()[1] for s in sockets])' "$1"
}
# wait_for SECONDS COMMAND...: until it succeeds.
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.2
  done
}
stop_cluster() {
  scancel --quiet --user=root 2>/dev/null || true
  wait_for 60 no_jobs || true
  daemons=$(cat "$work"/*.pid 2>/dev/null || true)
  [ -z "$daemons" ] || kill $daemons 2>/dev/null || true
  wait_for 30 no_daemons || true
}
no_jobs() { [ -z "$(squeue --noheader 2>/dev/null)" ]; }
no_daemons() { [ -z "$daemons" ] || ! kill -0 $daemons 2>/dev/null; }
finish() {
  local code=$?
  stop_cluster
  [ $code = 0 ] || tail -n 30 "$work"/logs/* "$work"/daemons/* >&2 || true
  rm -rf "$work"
  exit $code
}
trap finish EXIT

read -r control node1 node2 http1 http2 grpc1 grpc2 metrics1 metrics2 < <(free_ports 9)
mkdir -p "$work"/{state,spool/n1,spool/n2,daemons,logs}
cat >"$SLURM_CONF" <<END
ClusterName=nereid
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$control
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool/%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/daemons/slurmctld.log
SlurmdLogFile=$work/daemons/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$node1 CPUs=4 State=UNKNOWN
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$node2 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
slurmctld -f "$SLURM_CONF"
slurmd -f "$SLURM_CONF" -N n1
slurmd -f "$SLURM_CONF" -N n2
two_idle() { [ "$(sinfo --noheader --Node --format=%t 2>/dev/null | sort | uniq -c | tr -s ' ')" = " 2 idle" ]; }
wait_for 60 two_idle || fail "the nodes are not idle: $(sinfo --Node 2>&1)"

# A repository with an engine of two ranks.
model=models/quickstart
python3 examples/llama/convert_checkpoint.py --model_dir $model --output_dir "$work/checkpoint" --dtype bfloat16 --tp_size 2 >/dev/null
"$build/bin/trtllm-build" --checkpoint_dir "$work/checkpoint" --output_dir "$work/engine" --device cpu --max_batch_size 4 --fast_build >/dev/null
cp -r all_models/inflight_batcher_llm "$work/repository"
fill() { python3 tools/fill_template.py -i "$work/repository/$1/config.pbtxt" "$2"; }
fill ensemble triton_max_batch_size:4,logits_datatype:TYPE_FP32
fill preprocessing tokenizer_dir:$PWD/$model,triton_max_batch_size:4,preprocessing_instance_count:1
fill postprocessing tokenizer_dir:$PWD/$model,triton_max_batch_size:4,postprocessing_instance_count:1
fill tensorrt_llm "triton_backend:tensorrtllm,triton_max_batch_size:4,decoupled_mode:true,engine_dir:$work/engine,batching_strategy:inflight_fused_batching,max_queue_delay_microseconds:0,max_queue_size:0,encoder_input_features_data_type:TYPE_FP16,logits_datatype:TYPE_FP32,max_tokens_in_paged_kv_cache:2560"
fill tensorrt_llm_bls triton_max_batch_size:4,decoupled_mode:true,bls_instance_count:1,accumulate_tokens:false,logits_datatype:TYPE_FP32

# Both nodes are this machine, so their servers need ports of their own; the last flag counts.
cat >"$work/tritonserver" <<END
#!/bin/bash
case \$SLURMD_NODENAME in
  n1) ports="--http-port=$http1 --grpc-port=$grpc1 --metrics-port=$metrics1" ;;
  n2) ports="--http-port=$http2 --grpc-port=$grpc2 --metrics-port=$metrics2" ;;
esac
exec "$build/bin/tritonserver" "\$@" \$ports
END
chmod +x "$work/tritonserver"
export TRITONSERVER=$work/tritonserver MODEL_REPO=$work/repository
export SCRIPT=$PWD/deploy/slurm/tensorrt_llm_triton.sh

submit() { (cd "$work" && sbatch --parsable "$@"); }
is_ready() { curl -sf "localhost:$1/v2/health/ready"; }
ended() { [ -z "$(squeue --noheader --jobs="$1" 2>/dev/null)" ]; }
servers() { pgrep -f -- "--model-repository=$work/repository" || true; }
no_servers() { [ -z "$(servers)" ]; }
ask() {
  wait_for 300 is_ready "$1" || fail "the server on port $1 does not become ready"
  curl -sf "localhost:$1/v2/models/ensemble/generate" \
    -d '{"text_input": "What is machine learning?", "max_tokens": 12, "bad_words": "", "stop_words": ""}' \
    | python3 -c 'import json, sys; print(json.load(sys.stdin)["text_output"])' || fail "port $1 does not answer"
}
cancel() {
  scancel "$1"
  wait_for 90 ended "$1" || fail "job $1 does not end"
  wait_for 60 no_servers || fail "job $1 left processes: $(ps -o pid,args -p $(servers | paste -sd,))"
  [ -z "$(ls /dev/shm | grep '^nereid' || true)" ] || fail "job $1 left /dev/shm/$(ls /dev/shm | grep '^nereid')"
}

has_steps() { curl -sf "localhost:$metrics1/metrics" | grep '^nereid_rank_steps_total{.*rank="1".*} [1-9]' >/dev/null; }

text=""
for mpi in pmix none pmi2; do
  job=$(MPI=$mpi submit --nodelist=n1 "$PWD/deploy/slurm/tensorrt_llm_triton.sub")
  answer=$(ask "$http1")
  [ -n "$answer" ] && [ "${text:=$answer}" = "$answer" ] || fail "--mpi=$mpi answers '$answer', not '$text'"
  [ "$(servers | wc -l)" -ge 2 ] || fail "--mpi=$mpi: there are not two processes"
  wait_for 60 has_steps || fail "--mpi=$mpi: rank 1 has no steps"
  cancel "$job"
  echo "slurm: one node, two tasks, --mpi=$mpi: answers, is cancelled, leaves nothing"
done

job=$(submit "$PWD/deploy/slurm/several_nodes.sub")
for port in $http1 $http2; do
  answer=$(ask "$port")
  [ "$answer" = "$text" ] || fail "port $port of two nodes answers '$answer', not '$text'"
done
cancel "$job"
echo "slurm: two nodes, a server on each: both answer"

join=$(free_ports 1)
for mpi in pmix none; do
  # PMIx's sockets are named after the host, which both nodes are.
  nodes=(--nodes=2 --ntasks-per-node=1)
  [ $mpi = none ] || nodes=(--nodes=1 --ntasks-per-node=2)
  job=$(NEREID_JOIN=127.0.0.1:$join MPI=$mpi submit "${nodes[@]}" --nodelist="$([ $mpi = none ] && echo n1,n2 || echo n1)" \
    "$PWD/deploy/slurm/ranks_on_several_nodes.sub")
  answer=$(ask "$http1")
  [ "$answer" = "$text" ] || fail "ranks on several nodes answer '$answer', not '$text'"
  grep -h "2 processes exchange through" "$work"/logs/*.out >/dev/null || fail "the tasks did not join: $(cat "$work"/logs/*)"
  wait_for 60 has_steps || fail "ranks on several nodes: rank 1 has no steps"
  cancel "$job"
  [ -z "$(ls "$work"/logs/join_token_* 2>/dev/null)" ] || fail "the job left its token"
  echo "slurm: one server whose tasks join it, ${nodes[*]}, --mpi=$mpi: answers, is cancelled, leaves nothing"
done

# The guides' commands, with paths of this test.
srun_answers() {
  local what=$1 path=$2
  shift 2
  (cd "$work" && exec srun --nodelist=n1 --ntasks=2 --kill-on-bad-exit=1 "$@" >"$work/logs/srun.out" 2>&1) &
  local process=$!
  wait_for 120 curl -sf "localhost:$http1$path" >/dev/null || fail "$what does not become ready: $(cat "$work/logs/srun.out")"
  if [ "$path" = /health ]; then
    curl -sf "localhost:$http1/v1/models" >/dev/null || fail "$what does not answer"
  else
    answer=$(ask "$http1")
    [ "$answer" = "$text" ] || fail "$what answers '$answer', not '$text'"
  fi
  kill -TERM $process
  wait $process || true
  wait_for 60 no_jobs || fail "$what goes on"
  wait_for 60 no_servers || fail "$what left processes"
  echo "slurm: $what: answers, ends"
}
flags="--disable-auto-complete-config --backend-config=python,shm-region-prefix-name=prefix"
srun_answers "srun --mpi=pmix tritonserver --model-repository=R" /v2/health/ready --mpi=pmix "$work/tritonserver" --model-repository="$work/repository" ${flags}0_
srun_answers "srun --mpi pmix launch_triton_server.py --oversubscribe" /v2/health/ready --mpi pmix \
  python3 "$PWD/scripts/launch_triton_server.py" --oversubscribe --model_repo="$work/repository" --http_port="$http1" --grpc_port="$grpc1" --metrics_port="$metrics1"
srun_answers "srun --mpi=pmix trtllm-llmapi-launch trtllm-serve MODEL --tp_size 2" /health --mpi=pmix \
  "$build/bin/trtllm-llmapi-launch" trtllm-serve "$PWD/$model" --tp_size 2 --device cpu --port "$http1"

# refused WHAT PATTERN OPTION...: a job of tensorrt_llm_triton.sub ends by itself, with this in a log: the first task to end ends the others.
refused() {
  rm -f "$work"/logs/*
  job=$(submit "${@:3}" "$PWD/deploy/slurm/tensorrt_llm_triton.sub")
  wait_for 120 ended "$job" || fail "$1 goes on"
  grep -hE "$2" "$work"/logs/*.out | tail -n 1 || fail "$1: $(cat "$work"/logs/*)"
  cancel "$job"
}
refused "three tasks for two ranks" "started 3 processes, but the model has 2 ranks" --nodelist=n1 --ntasks-per-node=3
# PMIx's sockets are named after the host, which both nodes are.
MPI=none refused "a task on each of two nodes" "started 2 processes on several hosts" --nodes=2 --ntasks-per-node=1
echo "slurm: all passed"
