# Shell functions shared by test/run, test/cluster and test/demo/run; sourced by bash, from
# anywhere.
#
# Servers run as an ordinary user ($test_user when root calls) from a private copy of the installed
# PostgreSQL, with the gpugraph of this checkout installed into the copy: nothing is written into
# the machine's own PostgreSQL, and several checkouts can be tested at a time.
#
#	$base/pg			the private PostgreSQL (programs copied, libraries and data files linked)
#	$base/run/NAME		the cluster NAME: data, log, the place of its socket
#
# $base is build/ in the checkout, and $src the checkout. Where the test user cannot enter that (a
# checkout under /root, or cloned with umask 077), $base is a directory in /tmp and $src a copy of
# the tests.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
test_user=gpugraph-test
PG_CONFIG=${PG_CONFIG:-pg_config}

# Tests do not see what the caller set for PostgreSQL (PGHOST, PGDATA, PGOPTIONS, ...).
for variable in ${!PG@}; do
	case $variable in PG_CONFIG | PGVECTOR) ;; *) unset "$variable" ;; esac
done

# Machine code for one GPU, the one here, is enough for tests, and takes a sixth of the time.
if [ -z "${NVCC_GENCODE:-}" ]; then
	NVCC_GENCODE='-gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90'
	! nvidia-smi -L >/dev/null 2>&1 || NVCC_GENCODE=-arch=native
	export NVCC_GENCODE
fi

# The calling make's job server ends with its recipe, so the builds below have a -j of their own.
# TESTS=... on its command line is for us, not for the makes that we call.
MAKEFLAGS=$(printf '%s' "${MAKEFLAGS:-}" |
	sed -E 's/(^| )-j[0-9]*//g; s/ *--jobserver-[a-z]+=[^ ]*//g; s/ TESTS=([^ \\]|\\.)*//g')
export MAKEFLAGS

# Programs that tests call. They are copied, because a server looks for its files relative to its
# program. The copied pg_config tells tests the copy's directories; builds use the machine's.
pg_programs="postgres initdb pg_ctl pg_config psql pg_isready pg_controldata pg_basebackup
	pg_receivewal pg_waldump pg_resetwal pg_rewind pg_checksums pg_amcheck pg_dump pg_dumpall
	pg_restore pg_verifybackup pg_combinebackup pg_upgrade pgbench createdb dropdb createuser
	dropuser vacuumdb reindexdb"

die()
{
	echo "$(basename "$0"): $*" >&2
	exit 1
}

# Run a command as the user that servers run as. A server outlives its caller, so it must not
# inherit the caller's output (3, see test/cluster) or lock (9): others would wait for it.
as_user()
{
	if [ "$(id -u)" = 0 ]; then
		setpriv --reuid="$test_user" --regid="$(id -g "$test_user")" --clear-groups -- \
			env HOME="$base/run" USER="$test_user" LOGNAME="$test_user" "$@" 3>&- 9>&-
	else
		"$@" 3>&- 9>&-
	fi
}

# Only one of test/run, test/cluster and test/demo/run runs at a time in a checkout: wait for the
# others, and hold the lock until the caller ends. One that another calls has its lock.
lock()
{
	[ "${GPUGRAPH_LOCKED:-}" != "$top" ] || return 0
	export GPUGRAPH_LOCKED=$top
	mkdir -p "$top/build"
	exec 9>>"$top/build/lock"
	flock -n 9 || { echo "waiting for another run in this checkout" >&2; flock 9; }
}

# Settle $base and $src.
place()
{
	local f

	base=$top/build
	src=$top
	mkdir -p "$top/build"
	if ! as_user test -r "$top/test/lib.sh" || ! as_user test -x "$top/build"; then
		base=/tmp/gpugraph-$(printf '%s' "$top" | cksum | cut -d' ' -f1)
		src=$base/src
		mkdir -p -m 755 "$base"
		[ -O "$base" ] || die "$base is someone else's, remove it"
		rm -rf "$src"
		mkdir -p "$src"
		cp -r "$top/test" "$src/"
		for f in expected packaging doc META.json gpugraph.control sql README.md CHANGELOG.md; do
			[ ! -e "$top/$f" ] || cp -r "$top/$f" "$src/"
		done
		chmod -R u+rwX,go+rX "$src"
		echo "$test_user cannot read $top: servers run in $base"
	fi
	if [ ! -d "$base/run" ]; then
		mkdir -p "$base/run"
		[ "$(id -u)" != 0 ] || chown "$test_user:" "$base/run"
	fi
	as_user test -w "$base/run" ||
		die "$base/run belongs to $(stat -c %U "$base/run"): remove it first"
	# Servers' programs complain when they cannot enter the current directory.
	cd "$base/run"
}

# Make $base/pg from the installed PostgreSQL and install the built gpugraph there, and the pgvector
# of the source that the folder PGVECTOR has, if that is set. Sets $bin, $lib and $share.
pg_tree()
{
	local from_bin from_lib from_share common now f

	from_bin=$("$PG_CONFIG" --bindir) || die "$PG_CONFIG does not run"
	from_lib=$("$PG_CONFIG" --pkglibdir)
	from_share=$("$PG_CONFIG" --sharedir)

	# PostgreSQL finds its directories by their path relative to its program, so the copy keeps
	# everything below their common ancestor.
	common=$from_bin
	while [ "${from_share#"$common"/}" = "$from_share" ] ||
		[ "${from_lib#"$common"/}" = "$from_lib" ]; do
		common=$(dirname "$common")
		[ "$common" != / ] || { common=; break; }
	done
	bin=$base/pg${from_bin#"$common"}
	lib=$base/pg${from_lib#"$common"}
	share=$base/pg${from_share#"$common"}

	now=$("$PG_CONFIG" --version; echo "$pg_programs"
		stat -c '%n %Y' "$from_bin/postgres" "$from_lib" "$from_share/extension"
		[ -z "${PGVECTOR:-}" ] || stat -c '%n %Y' "$PGVECTOR/vector.control")
	if [ "$now" != "$(cat "$base/pg/made-from" 2>/dev/null)" ]; then
		rm -rf "$base/pg"
		mkdir -p "$bin" "$lib" "$share"
		for f in $pg_programs; do
			[ ! -e "$from_bin/$f" ] || cp -L "$from_bin/$f" "$bin/"
		done
		find "$from_lib" -mindepth 1 -maxdepth 1 ! -name pgxs ! -name bitcode \
			-exec ln -s -t "$lib" {} +
		cp -rs "$from_share/." "$share/"
		[ -z "${PGVECTOR:-}" ] || pgvector_into "$PGVECTOR"
		echo "$now" >"$base/pg/made-from"
	fi
	make -s -C "$top" WERROR="${WERROR:-1}" pkglibdir="$lib" datadir="$share" install \
		>"$base/install.log" 2>&1 ||
		{ cat "$base/install.log"; die "installing into $base/pg failed"; }
	chmod -R go+rX "$base/pg"
}

# pgvector_into SOURCE: with its authors' flags for this processor, unless OPTFLAGS is set
pgvector_into()
{
	local copy=$base/pgvector

	rm -rf "$copy"
	cp -r "$1" "$copy"
	rm -f "$lib"/vector.so "$share"/extension/vector[.-]*
	set -- PG_CONFIG="$PG_CONFIG" with_llvm=no ${OPTFLAGS+"OPTFLAGS=$OPTFLAGS"}
	make -s -C "$copy" -j"$(nproc)" "$@" >"$base/pgvector.log" 2>&1 &&
		make -s -C "$copy" "$@" pkglibdir="$lib" datadir="$share" \
			includedir_server="$base/pgvector-headers" install >>"$base/pgvector.log" 2>&1 ||
		{ cat "$base/pgvector.log"; die "pgvector in $PGVECTOR was not built"; }
	rm -rf "$copy" "$base/pgvector-headers"
}

# cluster_start NAME [SETTING=VALUE ...]: a new cluster, listening on a Unix socket only; the
# environment then leads libpq there. The socket's path must be short, so it lies in /tmp.
cluster_start()
{
	local name=$1 dir=$base/run/$1 setting
	shift
	cluster_stop "$name"
	as_user mkdir -p "$dir"
	export PGHOST PGPORT PGUSER=postgres PGDATABASE=postgres
	PGHOST=$(as_user mktemp -d /tmp/gg.XXXXXX)
	PGPORT=$((20000 + RANDOM % 40000))
	echo "$PGHOST $PGPORT" | as_user tee "$dir/socket" >/dev/null
	as_user "$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --no-locale \
		--no-instructions \
		>"$base/initdb.log" 2>&1 || { cat "$base/initdb.log"; die "initdb failed"; }
	{
		echo "listen_addresses = ''"
		echo "unix_socket_directories = '$PGHOST'"
		echo "port = $PGPORT"
		for setting in "$@"; do
			echo "${setting%%=*} = '${setting#*=}'"
		done
	} | as_user tee -a "$dir/data/postgresql.conf" >/dev/null
	as_user "$bin/pg_ctl" -w -t 60 -D "$dir/data" -l "$dir/log" start >/dev/null 3>&- || {
		tail -20 "$dir/log"
		die "the server did not start"
	}
}

# Stop the cluster NAME, if there, and remove its data; its log stays.
cluster_stop()
{
	local dir=$base/run/$1 host
	[ -d "$dir" ] || return 0
	if [ -f "$dir/data/postmaster.pid" ]; then
		as_user "$bin/pg_ctl" -w -D "$dir/data" -m "${2:-fast}" stop >/dev/null 2>&1 ||
			as_user "$bin/pg_ctl" -w -D "$dir/data" -m immediate stop >/dev/null 2>&1 || true
	fi
	if [ -f "$dir/socket" ]; then
		host=$(cut -d' ' -f1 "$dir/socket")
		case $host in /tmp/gg.*) rm -rf "$host" ;; esac
	fi
	rm -rf "$dir/data" "$dir/socket"
}

# Stop the cluster NAME, if it runs, and keep its data, for cluster_resume.
cluster_halt()
{
	local dir=$base/run/$1
	[ ! -f "$dir/data/postmaster.pid" ] ||
		as_user "$bin/pg_ctl" -w -t 300 -D "$dir/data" -m fast stop >/dev/null
}

# Start the cluster NAME again as it was kept; false when there is none.
cluster_resume()
{
	local dir=$base/run/$1
	[ -f "$dir/data/PG_VERSION" ] && [ -f "$dir/socket" ] || return 1
	export PGHOST PGPORT PGUSER=postgres PGDATABASE=postgres
	read -r PGHOST PGPORT <"$dir/socket"
	as_user mkdir -p "$PGHOST"
	# whoever made a checkout readable to all has made this, too, which PostgreSQL refuses
	as_user chmod 700 "$dir/data"
	as_user "$bin/pg_ctl" -w -t 300 -D "$dir/data" -l "$dir/log" start >/dev/null 3>&- || {
		tail -20 "$dir/log"
		die "the server did not start"
	}
}

# make_venv FOLDER REQUIREMENTS LOG [OPTION ...]: make the virtual environment FOLDER, with all that
# REQUIREMENTS lists, unless it is there. Options are for pip. On failure $why says whether pip
# reached no package index; it is empty after any other failure.
make_venv()
{
	local folder=$1 wanted=$2 out=$3 made_from
	shift 3
	made_from=$(python3 --version; cat "$wanted")
	[ "$made_from" != "$(cat "$folder/made-from" 2>/dev/null)" ] || return 0
	why=
	rm -rf "$folder"
	if python3 -m venv "$folder" >"$out" 2>&1 &&
		"$folder/bin/python" -m pip install --disable-pip-version-check --no-input --quiet \
			--only-binary :all: --retries 1 --timeout 15 "$@" -r "$wanted" >>"$out" 2>&1; then
		echo "$made_from" >"$folder/made-from"
		return 0
	fi
	! grep -qE 'connection broken|Could not fetch URL|HTTP error' "$out" ||
		why="pip reaches no package index"
	return 1
}

# adapters_venv: sets $venv, which the programs of test/bench/adapters share
adapters_venv()
{
	venv=$top/build/adapters
	make_venv "$venv" "$top/test/bench/adapters/requirements.txt" "$top/build/adapters.log" \
		--no-deps || die "${why:-see build/adapters.log}"
}
