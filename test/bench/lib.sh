# Shell functions that the benches share; sourced by bash when $here is this folder.
# shellcheck source=test/lib.sh
. "$here/../lib.sh"

bench=$(basename "$0")
workers=$(($(nproc) - 1))
cluster=$bench			# its server, which ends with it
keep=					# the server stays, stopped
scratch=				# a folder that goes with the bench
began=()				# of ours, what runs in the background

# What begins a bench's file, its comment, is its help, with the options that all of them have.
usage()
{
	sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
	printf '%s\n' '' 'And, as all benches have' \
		$'\t--server S=V\t\ta server setting, repeatable (gpugraph.engine=cpu)' \
		$'\t--name NAME\t\t\tnames the files in results/, default '"$bench-DATE-TIME" \
		$'\t--no-setup\t\t\tdo not look for what is missing on this machine (test/setup)'
	exit "$1"
}

# read_options PART ... -- "$@": of the bench's command line, the PARTs (patterns) that are named,
# into parts, and options. $options names these, each as NAME=DEFAULT, which takes a value; NAME,
# which sets the variable to yes; no-NAME, which empties it; or NAME+, which adds a value to an
# array. The variable is called NAME, with _ for -, or as :VARIABLE behind NAME says. --server,
# --name, --no-setup and --help are there without being named.
read_options()
{
	local -A entries=()
	local named=() entry option part variable

	# shellcheck disable=SC2154
	for entry in $options server+ "name=$bench-$(date +%Y%m%d-%H%M%S)" no-setup; do
		variable=${entry%%[=+]*} option=${entry%%[=+:]*}
		variable=${variable#*:} variable=${variable#no-} variable=${variable//-/_}
		case $entry in
			*=*) declare -g "$variable=${entry#*=}" && entry=$variable= ;;
			*+) declare -ga "$variable=()" && entry=$variable+ ;;
			no-*) declare -g "$variable=yes" && entry=$variable ;;
			*) declare -g "$variable=" && entry=$variable=yes ;;
		esac
		entries[$option]=$entry
	done
	parts=()
	while [ "$1" != -- ]; do
		named+=("$1")
		shift
	done
	shift
	while [ $# -gt 0 ]; do
		entry=
		case $1 in
			--help | -h) usage 0 ;;
			--?*) entry=${entries[${1#--}]:-} ;;
			*)
				for part in ${named[@]+"${named[@]}"}; do
					# shellcheck disable=SC2053
					[[ $1 != $part ]] || { parts+=("$1") && shift && continue 2; }
				done
				;;
		esac
		case $entry in
			'') die "there is no $1: --help" ;;
			*=yes) declare -g "$entry" ;;
			*[=+])
				[ $# -gt 1 ] || usage 2
				variable=${entry%[=+]}
				if [[ $entry == *= ]]; then
					declare -g "$variable=$2"
				else
					local -n array=$variable
					array+=("$2")
					unset -n array
				fi
				shift
				;;
			*) declare -g "$entry=" ;;
		esac
		shift
	done
}

finish()
{
	[ ${#began[@]} = 0 ] || kill "${began[@]}" 2>/dev/null || true
	if [ -n "$keep" ]; then
		cluster_halt "$cluster"
	else
		cluster_stop "$cluster"
	fi
	rm -rf "$scratch"
}

# read_set SET NQ: the numbers of a set, into n nq dim latent clusters metric seed, and its operator
# class and operator. SET is a name, whose set has NQ queries, or all numbers as generate has them.
read_set()
{
	set=$1
	case $set in
		smoke) set=5000,200,32,16,20,l2,1 ;;
		l2-200k-128) set=200000,$2,128,48,200,l2,1 ;;
		l2-1m-128) set=1000000,$2,128,30,200,l2,1 ;;
		cos-1m-768) set=1000000,$2,768,54,500,cos,1 ;;
	esac
	[[ $set =~ ^[0-9]+,[0-9]+,[0-9]+,[0-9]+,[0-9]+,(l2|ip|cos),[0-9]+$ ]] || die "unknown set $1"
	# shellcheck disable=SC2034
	IFS=, read -r n nq dim latent clusters metric seed <<<"$set"
	read_operator
}

# read_operator: that of $metric
read_operator()
{
	# shellcheck disable=SC2034
	case $metric in
		l2) opclass=vector_l2_ops operator='<->' ;;
		ip) opclass=vector_ip_ops operator='<#>' ;;
		cos) opclass=vector_cosine_ops operator='<=>' ;;
	esac
}

# open_bench: build, and make an empty results/$name.tsv ($tsv), after a look for what is missing on
# this machine, unless --no-setup
open_bench()
{
	work=$top/build/bench
	results=$top/results
	# shellcheck disable=SC2154
	tsv=$results/$name.tsv
	mkdir -p "$work/bin" "$work/data" "$results"
	: >"$tsv"
	[ -z "$setup" ] || "$top/test/setup"
	make -s -C "$here" OUT="$work/bin" PG_CONFIG="$PG_CONFIG"
	if [ "${PGVECTOR:-}" = newest ]; then
		PGVECTOR=$top/build/pgvector
		# shellcheck source=test/apt.sh
		. "$here/../apt.sh"
		newest_pgvector "$PGVECTOR" "$top" || die "no source of pgvector is to be had"
	fi
	place
	make -s -C "$top" WERROR="${WERROR:-1}" all
	pg_tree
	scratch=$(mktemp -d "${TMPDIR:-/tmp}/gpugraph-$bench.XXXXXX")
	trap finish EXIT
	trap 'exit 130' INT TERM
}

# close_bench: the last lines
close_bench()
{
	note "load after" "$(cut -d' ' -f1-3 /proc/loadavg), $SECONDS s in all"
	echo "figures: $tsv"
}

# start_server MEMORY [SETTING=VALUE ...]: $cluster, a server of 3/10 of the machine's memory, 40 GB
# at most, with the extensions, and --server's settings. MEMORY is its maintenance_work_mem. Notes
# the machine.
start_server()
{
	local memory=$1 total_mb buffers
	shift

	total_mb=$(($(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo) / 1024))
	buffers=$((total_mb * 3 / 10 > 40960 ? 40960 : total_mb * 3 / 10))
	# shellcheck disable=SC2154
	cluster_start "$cluster" shared_buffers="${buffers}MB" max_wal_size=16GB checkpoint_timeout=1h \
		autovacuum=off jit=off maintenance_work_mem="$memory" \
		max_parallel_maintenance_workers="$workers" max_worker_processes=$((workers + 16)) \
		shared_preload_libraries=gpugraph "$@" ${server[@]+"${server[@]}"}
	sql -c 'CREATE EXTENSION vector' -c 'CREATE EXTENSION pg_prewarm' \
		-c 'CREATE EXTENSION gpugraph'
	sleep 3						# the service has its devices by then
	note_machine
}

# note_machine: the machine and the server; sets device, the number of devices in use
note_machine()
{
	device=$(sql -c "SELECT count(*) FROM gpugraph_stat_device WHERE state = 'up'")
	note_host
	note memory "$(($(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo) / 1024)) MB,\
 shared_buffers $(sql -c 'SHOW shared_buffers'),\
 maintenance_work_mem $(sql -c 'SHOW maintenance_work_mem')"
	note devices "$device used"
	# shellcheck disable=SC2154
	note set "$set"
}

note_host()
{
	note date "$(date -u '+%Y-%m-%d %H:%M UTC')"
	note processor "$(nproc) x $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1)"
	note load "$(cut -d' ' -f1-3 /proc/loadavg) (1, 5, 15 minutes, before the run)"
	note gpu "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null |
		paste -sd';' | grep . || echo none)"
}

sql()
{
	# shellcheck disable=SC2154
	"$bin/psql" -X -q -A -t -v ON_ERROR_STOP=1 "$@"
}

note()
{
	printf 'info\t%s\t%s\n' "$1" "$2" >>"$tsv"
	printf '%-24s %s\n' "$1" "$2"
}

# figure WHAT VALUE [BAR]: BAR as in "<= 2"; the line says whether it is met, which a value that is
# no number never is. $part, if set, leads.
figure()
{
	local met='' lead=${part:-}

	if [ -n "${3:-}" ]; then
		met=$(awk "BEGIN { print ($2 $3) ? \"met\" : \"MISSED\" }" 2>/dev/null) || met=MISSED
		met="bar $3: $met"
	fi
	printf 'figure\t%s%s\t%s\t%s\n' "${lead:+$lead	}" "$1" "$2" "$met" >>"$tsv"
	printf '%-62s %12s  %s\n' "${lead:+$lead: }$1" "$2" "$met"
}

# calc FORMAT EXPRESSION
calc()
{
	awk "BEGIN { printf \"$1\", ($2) }"
}

# mib BYTES [FORMAT]
mib()
{
	calc "${2:-%.0f}" "($1) / 1048576"
}

# timed COMMAND ...: sets took, its seconds
timed()
{
	local before=${EPOCHREALTIME/[.,]/}
	"$@" || return
	took=$(calc %.2f "(${EPOCHREALTIME/[.,]/} - $before) / 1e6")
}

median()
{
	sort -g | awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : 0 }'
}

size()
{
	sql -c "SELECT pg_relation_size('$1')"
}

lsn()
{
	sql -c "SELECT pg_current_wal_lsn() - '0/0'"
}

# info INDEX COLUMN: of gpugraph_index_info()
info()
{
	sql -c "SELECT $2 FROM gpugraph_index_info('$1')"
}

exists()
{
	[ -n "$(sql -c "SELECT to_regclass('$1')")" ]
}

# prewarm NAME ...: tables and indexes into shared buffers, what lies out of line, too
prewarm()
{
	local name
	for name; do
		sql -c "SELECT pg_prewarm('$name')" -c "SELECT pg_prewarm(reltoastrelid) FROM pg_class
			WHERE oid = '$name'::regclass AND reltoastrelid <> 0"
	done >/dev/null
}

# reset_counts: of queries and who answered
reset_counts()
{
	sql -c 'SELECT gpugraph_stat_reset()' >/dev/null
}

# limit SIZE: gpugraph.device_memory
limit()
{
	sql -c "ALTER SYSTEM SET gpugraph.device_memory = '$1'" -c 'SELECT pg_reload_conf()' >/dev/null
	sleep 1
}

# run_part PART REGEXP: part_PART, and the lines of the server's log meanwhile that match
run_part()
{
	local server_log=$base/run/$cluster/log lines_before
	part=$1
	echo
	echo "== $part"
	lines_before=$(wc -l <"$server_log")
	"part_${part//-/_}"
	tail -n "+$((lines_before + 1))" "$server_log" | grep -E "$2" | tee "$scratch/log" |
		tail -12 || true
	sed "s/^/log\t$part\t/" "$scratch/log" >>"$tsv"
}

# ---- rows ---------------------------------------------------------------------

# make_data [OPTION ...]: the files of $set, by generate with these options, unless they are there;
# sets data. Others of the bench, which may be large, go.
make_data()
{
	local numbers
	IFS=, read -ra numbers <<<"$set"
	data=$work/data/$bench-$(tr -d ' ' <<<"$*")-${set//,/-}
	[ ! -f "$data/meta" ] || return 0
	rm -rf "$work/data/$bench"-*
	"$work/bin/generate" "$@" "$data" "${numbers[@]}"
}

# make_table TABLE [ROWS [FILE [COLUMNS]]]: rows of a file, all or the first ones; default the
# set's. COLUMNS: more of them, each behind a comma.
make_table()
{
	sql -c "SET client_min_messages = warning; DROP TABLE IF EXISTS $1" \
		-c "CREATE TABLE $1 (id int4, v vector($dim)${4:-}) WITH (parallel_workers = $workers)"
	"$work/bin/load" '' "$1" "${3:-$data/base.f32}" "$dim" ${2:+"$2"}
	sql -c "VACUUM (FREEZE, ANALYZE) $1"
}

# drawn_data TABLE: sets data, where draw_table leaves queries and answers
drawn_data()
{
	data=$work/data/$bench-$1-${type:-vector}-${set//,/-}
}

# draw_table TABLE [unlogged]: the rows of $set without a file of them
draw_table()
{
	local numbers
	IFS=, read -ra numbers <<<"$set"
	drawn_data "$1"
	sql -c "CREATE ${2:-} TABLE $1 (id int4, v ${type:-vector}($dim))
		WITH (parallel_workers = $workers)"
	"$work/bin/draw" -T "$1" -t "${type:-vector}" -c "${connections:-$((workers + 1))}" "$data" \
		"${numbers[@]}"
}

# ---- in which form a device holds an index ------------------------------------

# settings_of FORM: device_storage, MB of device memory and host_memory for an index of n rows.
# full: rows; codes: and codes; halves: halves and codes; host: codes, and rows in host memory;
# none: codes alone
settings_of()
{
	case $1 in
		full) echo "full $(((n * (dim * 6 + 160) >> 20) + 1024)) 0" ;;
		codes) echo "codes $(((n * (dim * 9 / 2 + 200) >> 20) + 1024)) 0" ;;
		halves) echo "codes $((n * (dim * 3 + 200) >> 20)) 0" ;;
		host) echo "codes $((n * (dim / 2 + 260) >> 20)) -1" ;;
		none) echo "codes $((n * (dim / 2 + 260) >> 20)) 0" ;;
		*) die "there is no form $1" ;;
	esac
}

# hold FORM INDEX: have the device hold the index so; sets took, the seconds that this did
hold()
{
	local storage memory host
	read -r storage memory host <<<"$(settings_of "$1")"
	sql -c "ALTER SYSTEM SET gpugraph.device_storage = $storage" \
		-c "ALTER SYSTEM SET gpugraph.device_memory = '${memory}MB'" \
		-c "ALTER SYSTEM SET gpugraph.host_memory = '$([ "$host" = -1 ] && echo 64GB || echo 0)'" \
		-c "SELECT pg_reload_conf()" >/dev/null
	sleep 1
	sql -c "SELECT gpugraph_evict('$2')" >/dev/null
	timed sql -c "SELECT gpugraph_prewarm('$2')" >/dev/null
}

# hold_any: let the device hold indexes as it likes again
hold_any()
{
	sql -c 'ALTER SYSTEM RESET gpugraph.device_storage' \
		-c 'ALTER SYSTEM RESET gpugraph.device_memory' \
		-c 'ALTER SYSTEM RESET gpugraph.host_memory' -c 'SELECT pg_reload_conf()' >/dev/null
	sleep 1
}

# ---- queries of a set, by annbench ------------------------------------------

# ask_with ITOPK: sets session, with which each connection begins
ask_with()
{
	session="LOAD 'gpugraph'; SET gpugraph.itopk_size = $1;
		SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;"
}

# query_of TABLE: the $k nearest, of rows that are $where
query_of()
{
	local param="\$1::vector"
	[ "${type:-vector}" = vector ] || param=$param::$type
	# shellcheck disable=SC2154
	echo "SELECT id FROM $1 ${where:+WHERE $where }ORDER BY v $operator $param LIMIT ${k:-10}"
}

# check_plan TABLE INDEX: every figure is about the index, not about another plan
check_plan()
{
	local zero plan
	zero=$(sql -c "SELECT '[' || string_agg('1', ',') || ']' FROM generate_series(1, $dim)")
	plan=$(sql -c "$session" -c "PREPARE q(vector) AS $(query_of "$1")" \
		-c "EXPLAIN (COSTS OFF) EXECUTE q('$zero')")
	[[ $plan == *"Index Scan using $2 on $1"* ]] || die "$1 is not asked by $2: $plan"
}

# ask TABLE CLIENTS SECONDS [QUERY [OPTION ...]]: by the query or query_of, and annbench with these
# options; sets recall, qps, p50, p95, p99, per (rows of a query), asked (queries) and lost
ask()
{
	local line
	# shellcheck disable=SC2154
	line=$("$work/bin/annbench" -D "$data" -n "$dim" -q "${4:-$(query_of "$1")}" -s "$session" \
		-k "${k:-10}" -c "$2" -t "$3" -o tsv -l "$1" "${@:5}") || return
	# shellcheck disable=SC2034
	IFS=$'\t' read -r _ _ _ recall qps p50 p95 p99 per asked lost _ <<<"$line"
}

# watch TABLE SECONDS SQL [EVERY]: one client queries TABLE so long, or until it is told to end, and
# notes each second; meanwhile the rows of SQL come every so many seconds, default 1, as lines into
# $scratch/states. asker and watcher are the two. annbench writes its file at the end.
watch()
{
	echo "$3 \\watch ${4:-1}" >"$scratch/watch.sql"
	# not by sql(): who ends it ends psql itself, not a shell around it
	"$bin/psql" -X -q -A -t -F $'\t' -f "$scratch/watch.sql" >"$scratch/states" &
	watcher=$!
	"$work/bin/annbench" -D "$data" -n "$dim" -q "$(query_of "$1")" -s "$session" -c 1 -t "$2" \
		-o tsv -p "$scratch/seconds" >/dev/null &
	asker=$!
	began=("$watcher" "$asker")
}

# subset DIR: query files of the queries whose numbers come in, in that order
subset()
{
	local numbers q bytes file
	mkdir -p "$1"
	numbers=$(cat)
	for file in query.f32 gt.i32 gd.f64; do
		bytes=$(($(stat -c %s "$data/$file") / nq))
		for q in $numbers; do
			tail -c "+$((q * bytes + 1))" "$data/$file" | head -c "$bytes"
		done >"$1/$file"
	done
}
