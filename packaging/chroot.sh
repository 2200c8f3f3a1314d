# Shell functions for scripts that work in a chroot of a Debian release, sourced by bash as root.
# What they fetch comes from the machine's own mirror.
#
# The caller sets $top, the checkout, and die().

chroots=$top/build/chroot

# own_namespaces SCRIPT [ARG ...]: runs the calling script again, in mount and process namespaces
# of its own: mounts and processes end with it.
own_namespaces()
{
	[ "$(id -u)" = 0 ] || die "this needs root, for a chroot"
	[ "${GG_NAMESPACES:-}" != own ] || return 0
	command -v debootstrap >/dev/null ||
		apt-get install -y -q --no-install-recommends debootstrap >/dev/null
	GG_NAMESPACES=own exec unshare --mount --pid --fork --kill-child --mount-proc -- "$@"
}

# own_user_namespace SCRIPT [ARG ...]: runs the calling script again, as root of a user namespace,
# in which the kernel hands programs for arm64 to qemu. The machine's own table of such programs
# stays as it is: Linux has one for each user namespace, from 6.7 on.
own_user_namespace()
{
	local pid magic mask own fifo=$chroots/fifo qemu=$chroots/qemu/usr/bin/qemu-aarch64-static

	if [ "${GG_NAMESPACES:-}" = user ]; then
		mount -t proc proc /proc
		mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
		magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
		mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
		echo ":qemu-aarch64:M::$magic:$mask:$qemu:F" >/proc/sys/fs/binfmt_misc/register
		return
	fi
	# its package would tell the machine of it
	if [ ! -x "$qemu" ]; then
		mkdir -p "$chroots/qemu"
		(cd "$chroots/qemu" && apt-get download -q qemu-user-static >/dev/null 2>&1 &&
			dpkg -x qemu-user-static_*.deb . && rm qemu-user-static_*.deb) ||
			die "qemu-user-static is not to be had"
	fi
	rm -f "$fifo"
	mkfifo "$fifo"
	GG_NAMESPACES=user unshare --user --mount --pid --fork --kill-child -- \
		bash -c 'read -r _ <"$0"; exec "$@"' "$fifo" "$@" &
	pid=$!
	own=$(readlink /proc/self/ns/user)
	while [ "$(readlink /proc/$pid/ns/user)" = "$own" ]; do sleep 0.1; done
	echo '0 0 65536' >/proc/$pid/uid_map
	echo '0 0 65536' >/proc/$pid/gid_map
	echo >"$fifo"
	rm -f "$fifo"
	wait $pid
	exit
}

# bare_chroot SUITE FOLDER: a new chroot with what debootstrap calls minbase. It is made once, into
# build/chroot/SUITE-bare.tar. No service of an installed package starts in it.
bare_chroot()
{
	local suite=$1 tar=$chroots/$1-bare.tar release mirror format

	if [ ! -f "$tar" ]; then
		mkdir -p "$chroots"
		release=$(. /etc/os-release && echo "$VERSION_CODENAME")
		format='$(REPO_URI)|$(RELEASE)|$(COMPONENT)'
		mirror=$(apt-get indextargets --format "$format" 'Created-By: Packages' |
			awk -F'|' -v r="$release" '$2 == r && $3 == "main" { print $1; exit }')
		[ -n "$mirror" ] || die "no apt source of $release found"
		rm -rf "$tar.new"
		debootstrap --variant=minbase "$suite" "$tar.new" "$mirror" >"$tar.log" 2>&1 || {
			tail "$tar.log" >&2
			die "debootstrap $suite failed"
		}
		printf '#!/bin/sh\nexit 101\n' >"$tar.new/usr/sbin/policy-rc.d"
		chmod 755 "$tar.new/usr/sbin/policy-rc.d"
		tar -C "$tar.new" -cf "$tar.part" .
		mv "$tar.part" "$tar"
		rm -rf "$tar.new"
	fi
	unpack_chroot "$tar" "$2"
	# a mirror's lists of unstable may be older than they say that they are valid
	echo 'Acquire::Check-Valid-Until "false";' >"$2/etc/apt/apt.conf.d/90mirror"
}

unpack_chroot()
{
	rm -rf --one-file-system "$2"
	mkdir -p "$2"
	tar -C "$2" -xf "$1"
}

# enter_chroot FOLDER: mounts what programs in it need, and sets $root, where inside() runs them
enter_chroot()
{
	root=$1
	mount -t proc proc "$root/proc"
	mount --rbind /dev "$root/dev"
	cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
}

leave_chroot()
{
	umount -l "$root/proc" "$root/dev" 2>/dev/null || true
	! mountpoint -q "$root/usr/local/cuda" || umount -l "$root/usr/local/cuda"
}

inside()
{
	chroot "$root" /usr/bin/env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		LC_ALL=C DEBIAN_FRONTEND=noninteractive \
		${NVCC_GENCODE:+"NVCC_GENCODE=$NVCC_GENCODE"} "$@"
}

# lend_cuda DIR [MORE]: the toolkit of the machine, to be read, and what the folder MORE adds to it
lend_cuda()
{
	mkdir -p "$root/usr/local/cuda"
	if [ -n "${2:-}" ]; then
		mount -t overlay -o "ro,lowerdir=$2:$1" overlay "$root/usr/local/cuda"
	else
		mount --bind -o ro "$1" "$root/usr/local/cuda"
	fi
}

# copy_sources DIR: the working tree, without what is built
copy_sources()
{
	mkdir -p "$root$1"
	tar -C "$top" --exclude=./build --exclude=./.git --exclude=./results \
		--exclude='*.o' --exclude='*.d' --exclude='*.so' -c . | tar -C "$root$1" -x --no-same-owner
}
