# Shell functions to fetch Debian's packages of other releases, sourced by bash: test/setup,
# test/versions, packaging/packages.

# own_apt FOLDER SUITE ...: sets the array own_apt to apt's options for lists of these suites in
# FOLDER, from the mirror and with the keys that this machine's sources name. The machine's own
# sources and lists stay as they are. False when the machine has no such source.
own_apt()
{
	local folder=$1 release uri signed_by suite

	shift
	release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	IFS='|' read -r uri signed_by <<-END
		$(apt-get indextargets --format '$(REPO_URI)|$(SIGNED_BY)|$(RELEASE)|$(COMPONENT)' \
			'Created-By: Packages' |
			awk -F'|' -v r="$release" '$3 == r && $4 == "main" { print $1 "|" $2; exit }')
	END
	[ -n "$uri" ] || return 1
	case $signed_by in
		/*) signed_by="[signed-by=$signed_by] " ;;
		*) signed_by= ;;
	esac
	mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
	for suite; do
		echo "deb $signed_by$uri $suite main"
		echo "deb-src $signed_by$uri $suite main"
	done >"$folder/sources.list"
	own_apt=(-q -o Dir::Etc::SourceList="$folder/sources.list" -o Dir::Etc::SourceParts=/dev/null
		-o Dir::Etc::Preferences="$folder/preferences" -o Dir::Etc::PreferencesParts=/dev/null
		-o Dir::State::Lists="$folder/lists" -o Dir::Cache="$folder/cache"
		-o Acquire::Languages=none -o APT::Sandbox::User=root)
	touch "$folder/preferences"
}

# unpack PACKAGE FOLDER: the authors' source, of the newest of own_apt's releases whose archive has
# it. The archive itself stays in FOLDER/download.
unpack()
{
	local version folder=$2

	mkdir -p "$folder/download"
	for version in $(apt-cache "${own_apt[@]}" showsrc --only-source "$1" 2>/dev/null |
		sed -n 's/^Version: //p' | sort -rV); do
		(cd "$folder/download" && apt-get "${own_apt[@]}" source --download-only --tar-only \
			"$1=$version" >"$folder/download.log" 2>&1) || continue
		tar -x -f "$folder/download/$1"_*.orig.tar.* -C "$folder" --strip-components=1 \
			--no-same-owner
		return
	done
	return 1
}

# newest_pgvector FOLDER TOP: pgvector's source, the newest that Debian's archive gives out, unless
# FOLDER has one; lists and log go to TOP/build/apt. False when there is none.
newest_pgvector()
{
	[ ! -f "$1/vector.control" ] || return 0
	rm -rf "$1" "$1.new"
	own_apt "$2/build/apt" trixie unstable || return 1
	apt-get "${own_apt[@]}" update >"$2/build/apt/log" 2>&1 || return 1
	unpack pgvector "$1.new" && mv "$1.new" "$1"
}
