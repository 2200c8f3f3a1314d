# Shell functions to fetch Debian's packages of other releases, sourced by bash: test/setup,
# test/versions.

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
