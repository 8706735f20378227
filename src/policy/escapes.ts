import { posix } from 'node:path'

import { realPath } from '../base/real-path.ts'
import type { AllowedCommand } from './mesh/acl.ts'
import { findExecutable, MULTI_CALL } from './executable.ts'

/** A way in which a program does more than its name says, and what to allow instead. */
export interface Escape {
  /** By name; `*` is any program. */
  readonly programs: readonly string[]
  readonly risk: string
  readonly remedy: string
  /** Only where a token after the program fits; without them, always. */
  readonly flags?: RegExp
  /** … and only where no token fits this. */
  readonly unless?: RegExp
  /** Only where the caller may send stdin. */
  readonly stdin?: true
  /** Its first plain argument is a script. */
  readonly scripts?: true
}

const OWN_SCRIPT = 'allow a script of your own by its absolute path, owned by root and without arguments'
const CLOSE = `say stdin = false, or ${OWN_SCRIPT}`
const DROP = 'drop the flag'
const ITSELF = 'allow that program itself, by its absolute path'

const row = (
  programs: string,
  risk: string,
  remedy: string,
  when: Pick<Escape, 'flags' | 'unless' | 'stdin' | 'scripts'> = {},
): Escape => ({
  programs: programs.split(' '),
  risk,
  remedy,
  ...when,
})

/**
 * The usual suspects, after the public GTFOBins catalogue. An argv is pinned token for token, so what
 * counts here is what still varies: stdin, which the caller sends, files and settings that others may
 * write, and slots. The list helps an operator to see; it proves nothing about programs it lacks.
 */
export const ESCAPES: readonly Escape[] = [
  row(
    'sh bash rbash dash ash zsh ksh mksh fish csh tcsh busybox toybox pwsh',
    'is a shell: it runs the stdin that the caller sends',
    CLOSE,
    {
      stdin: true,
      scripts: true,
    },
  ),
  row(
    'python pypy perl ruby node nodejs bun deno lua luajit php tclsh wish expect osascript tsx ts-node R Rscript julia guile irb ghci groovy jjs jrunscript jshell gdb lldb bc dc m4',
    'is an interpreter: it runs the stdin that the caller sends',
    CLOSE,
    { stdin: true, scripts: true },
  ),
  row(
    'python pypy perl ruby node nodejs bun deno lua luajit php tclsh tsx ts-node Rscript julia java',
    'loads modules and settings from where it starts, from beside its script and from HOME',
    `see that others cannot write there, or ${OWN_SCRIPT}`,
  ),
  row('awk gawk mawk nawk', 'runs a program that can start commands and write files (system(), print to a file or a pipe)', OWN_SCRIPT),
  row(
    'sed gsed',
    'can rewrite files (-i, w) and start commands (e), or reads its program from a file (-f)',
    'use an expression without e and w and no -i or -f',
    { flags: /^(-[A-Za-z]*[if]|--in-place|--file)|^s(.).*\2.*\2[gpiImM0-9]*[ew]|(^|[;{}/0-9$ ])[ewW]( +\S|$)/ },
  ),
  row(
    'vi vim rvim gvim nvim view rview vimdiff ex ed nano pico emacs joe jed micro kak hx mc mcedit editor sensible-editor visudo vipw vigr',
    'is an editor: it starts commands and writes any file, and takes keys from stdin',
    `use cat to show a file; to change one, ${OWN_SCRIPT}`,
  ),
  row(
    'less more most pg man pager sensible-pager bat batcat zless zmore',
    'is a pager: it can start a shell and an editor',
    'use cat, head or tail',
  ),
  row(
    'systemctl journalctl loginctl machinectl networkctl timedatectl hostnamectl localectl coredumpctl busctl',
    'starts a pager where it finds a terminal, and a pager starts a shell',
    'add "--no-pager"',
    { unless: /^--no-pager$/ },
  ),
  row(
    'systemctl loginctl machinectl timedatectl hostnamectl localectl busctl',
    'goes to another host or machine, by ssh with its settings',
    'put the other host on the mesh and list this agent in its own ACL',
    { flags: /^(-[A-Za-z]*[HM]|--host|--machine)/ },
  ),
  row('systemctl', 'changes what the system runs', OWN_SCRIPT, { flags: /^(edit|link|set-environment|import-environment|--root.*)$/ }),
  row('machinectl', 'opens a shell in a machine, or moves files there', OWN_SCRIPT, {
    flags: /^(shell|login|copy-.*|bind|import-.*|pull-.*)$/,
  }),
  row('busctl dbus-send gdbus', 'calls any service of the system, also the one that starts programs', OWN_SCRIPT, {
    flags: /^(call|set-property|emit|--system|--session)$/,
  }),
  row('journalctl', 'writes, deletes or reads journals of another place', DROP, {
    flags: /^(--cursor-file|--vacuum-|--rotate|--flush|--relinquish-var|--setup-keys|-D|--directory|--file|--root)/,
  }),
  row('git hg svn', 'runs hooks, filters, aliases, pagers and transports that the repository or HOME configures', OWN_SCRIPT),
  row(
    'curl',
    'can write and read local files and sockets (-o, -O, -T, -K, -D, @FILE, file://, --unix-socket)',
    'let it print to stdout, with an http:// or https:// address in the rule',
    {
      flags:
        /^(-[A-Za-z#]*([oOJTKFcDE]|d@)|--output|--remote-|--upload-file|--config|--form|--cookie-jar|--dump-header|--trace|--libcurl|--engine|--stderr|--etag-save|--hsts|--alt-svc|--netrc|--create-dirs|--(abstract-)?unix-socket|[Ff][Ii][Ll][Ee]:)|^(@|.*=@)/,
    },
  ),
  row('curl', 'reads ~/.curlrc, which can add any option', 'add "-q" as the first argument', { unless: /^(-q|--disable)$/ }),
  row(
    'wget aria2c axel',
    'writes files, and its flags and settings can post local files and start programs',
    'use curl -q, which prints to stdout',
  ),
  row('tar bsdtar gtar', 'starts other programs or leaves its directory (--checkpoint-action, --to-command, -I, -F, -P)', DROP, {
    flags:
      /^(--checkpoint-action|--to-command|--use-compress-program|-[A-Za-z]*[IF]|--rsh-command|--rmt-command|--info-script|--new-volume-script|--absolute-names|-[A-Za-z]*P)/,
  }),
  row(
    'tar bsdtar gtar unzip cpio pax 7z 7za ar',
    'unpacks what an archive holds over what is there, also from the stdin that the caller sends',
    OWN_SCRIPT,
    { flags: /^(-?[A-Za-z]*x|--extract|--get|-i|-d|e$)/ },
  ),
  row('zip', 'starts another program to test an archive (-TT)', DROP, { flags: /^(-[A-Za-z]*T|--test|--unzip-command)/ }),
  row('find gfind fd fdfind', 'starts programs, deletes or writes (-exec, -ok, -delete, -fprint)', `use -print alone, or ${OWN_SCRIPT}`, {
    flags: /^(-exec|-ok|-delete|-fprint|-fls|-files0-from|-x$|-X$|--exec)/,
  }),
  row('xargs parallel', 'starts commands that it builds from its input, which the caller sends', CLOSE, { stdin: true }),
  row('run-parts', 'starts every program of a directory', OWN_SCRIPT),
  row(
    'env nohup timeout nice ionice chrt taskset setsid stdbuf setarch linux32 linux64 i386 x86_64 uname26 flock watch time script entr dbus-run-session unbuffer',
    'starts another program, which escapes the check of argv[0]',
    ITSELF,
  ),
  row('prlimit', 'starts another program, which escapes the check of argv[0]', ITSELF, { flags: /^[^-]/ }),
  row(
    'valgrind strace ltrace unshare nsenter chroot proot fakeroot bwrap firejail start-stop-daemon systemd-run screen tmux ld.so',
    'starts another program, in surroundings of its own making',
    ITSELF,
  ),
  row(
    'sudo doas su runuser pkexec setpriv capsh run0 sg newgrp gosu su-exec',
    'runs a program as another user, beyond what this daemon may do',
    'run the daemon as the user that the task needs',
  ),
  row(
    'ssh scp sftp rsync mosh autossh ssh-keygen ssh-agent',
    'starts programs from its flags and from ~/.ssh/config (ProxyCommand, -e, -D), and goes on to other hosts',
    'put the other host on the mesh and list this agent in its own ACL',
  ),
  row('nc ncat netcat socat telnet openssl tftp ftp lftp', 'carries data between files, programs and the network', OWN_SCRIPT),
  row(
    'docker podman nerdctl ctr crictl kubectl oc helm lxc incus virsh vagrant',
    'commands a container or machine engine, which is as good as root',
    OWN_SCRIPT,
  ),
  row('docker podman kubectl oc helm terraform tofu', 'applies what the caller sends as stdin', CLOSE, {
    stdin: true,
    flags: /^(-|-f-|.*=-)$/,
  }),
  row('apt apt-get aptitude dpkg rpm yum dnf zypper apk pacman snap flatpak brew', 'runs the scripts of packages, as root', OWN_SCRIPT),
  row(
    'pip pipx uv uvx poetry npm npx yarn pnpm gem cargo go composer make gmake cmake ninja rake mvn gradle ant ansible ansible-playbook ansible-pull terraform tofu packer',
    'runs what packages, playbooks or build files say',
    OWN_SCRIPT,
  ),
  row('java', 'runs what its archive or class path holds', `see that others cannot write there, or ${OWN_SCRIPT}`, {
    flags: /^(-jar|-cp|-classpath|--class-path|-javaagent|-agent|@)/,
  }),
  row('cc gcc g++ c++ clang clang++ tcc', 'compiles what the caller sends, reads flags from files and starts programs', OWN_SCRIPT, {
    flags: /^(-|-x|@.*|-wrapper|-fplugin.*|-B.*|-specs.*)$/,
  }),
  row('ldd', 'may run the program that it looks at', 'use objdump -p'),
  row('modprobe insmod rmmod kexec', 'changes the kernel', OWN_SCRIPT),
  row('sysctl', 'changes settings of the kernel', DROP, { flags: /^(-[A-Za-z]*[wp]|--write|--load|--system)|=/ }),
  row('update-alternatives ldconfig', 'changes what a name of a program or library leads to', OWN_SCRIPT),
  row('tee dd sponge split csplit', 'writes the stdin that the caller sends into a file', CLOSE, { stdin: true }),
  row('*', 'takes the stdin that the caller sends for a file', CLOSE, {
    stdin: true,
    flags: /^(.*=)?\/(dev\/(stdin|fd\/0)|proc\/self\/fd\/0)$/,
  }),
  row('patch', 'changes the files that its input names, and the caller sends stdin', CLOSE, { stdin: true }),
  row('iptables-restore ip6tables-restore ebtables-restore arptables-restore ipset', 'takes the rules of the firewall from stdin', CLOSE, {
    stdin: true,
  }),
  row('nft', 'loads rules from a file or from stdin', OWN_SCRIPT, { flags: /^(-[A-Za-z]*[fi]|--file|--interactive)/ }),
  row('gpg gpg2', 'starts programs, and takes keys and messages from stdin', OWN_SCRIPT),
  row('crontab at batch logrotate chpasswd newusers passwd useradd usermod chsh', 'changes what runs later or who may log in', OWN_SCRIPT),
  row(
    'psql mysql mariadb sqlite sqlite3 mongo mongosh redis-cli mail mailx mutt nmcli bluetoothctl wpa_cli',
    'takes commands from stdin, some of which start programs or write files',
    CLOSE,
    { stdin: true },
  ),
  row('sendmail exim exim4 msmtp', 'sends what the caller gives it as stdin, and to whom', CLOSE, { stdin: true }),
  row('nmap tcpdump tshark', 'runs scripts or programs, or writes files, with this flag', DROP, {
    flags: /^(--script|--interactive|-i[LR]|-o[NXSGA]|-[A-Za-z]*[wz]$)/,
  }),
  row('ip tc', 'starts programs (netns exec) or reads commands from a file (-batch)', 'name the one object that is to be shown', {
    flags: /^(netns|-b|-batch|-force)$/,
  }),
  row('sort split', 'writes a file or starts a program with this flag', DROP, {
    flags: /^(-[a-z]*o|--output|--compress-program|--filter|--files0-from)/,
  }),
  row('kill renice prlimit', 'lets the caller choose any process of the daemon’s user, the daemon too', OWN_SCRIPT, { flags: /^<INT>$/ }),
  row('pkill killall skill', 'ends every process of that name or pattern, the daemon’s too', OWN_SCRIPT),
]

const KNOWN: ReadonlySet<string> = new Set(ESCAPES.flatMap((escape) => escape.programs))
/** Files that act by the name they are called by, so that the file's own name says nothing. */
const MANY_NAMES: readonly string[] = [...MULTI_CALL, 'systemctl']

/** The name that a program is known by: `/usr/bin/python3.12` is python, `nc.openbsd` is nc. */
export const programName = (argv0: string): string => {
  const base = posix.basename(argv0)
  // In musl the C library is its loader.
  if (/^(ld(64)?(-[^/]*)?|libc(\.musl-[^/]*)?)\.so(\.\d+)*$/.test(base)) return 'ld.so'
  // A script of somebody's own is not what it is called after.
  if (KNOWN.has(base) || /\.(sh|bash|py|pl|rb|js)$/.test(base)) return base
  const plain = base.replace(/^[a-z0-9_]+-linux-(gnu|musl)[a-z]*-/, '').replace(/-?[0-9].*$|\..*$/, '')
  return plain === '' ? base : plain
}

/** The known name of the file that argv[0] leads to on this host; null where that is no other name. */
const resolvedName = (argv0: string): string | null => {
  const lookup = findExecutable(argv0)
  if (lookup.kind !== 'found') return null
  const name = programName(realPath(lookup.executable.path))
  return MANY_NAMES.includes(name) || name === programName(argv0) ? null : name
}

/** The usual name of an interpreter of scripts; null for what is none. One file that is many is none by itself. */
export const interpreterName = (argv0: string): string | null => knownName(argv0, ({ scripts }) => scripts === true)

/** Is it a program that starts another, which its arguments name? */
export const startsOthers = (argv0: string): boolean => knownName(argv0, ({ remedy }) => remedy === ITSELF) !== null

const knownName = (argv0: string, isMeant: (escape: Escape) => boolean): string | null =>
  [programName(argv0), resolvedName(argv0)].find(
    (name) => name !== null && ESCAPES.some((escape) => isMeant(escape) && escape.programs.includes(name)),
  ) ?? null

/** What a command can do beyond what it says, and the known name of the program that can. */
export const escapesOf = (command: AllowedCommand, stdinOpen: boolean): { readonly name: string; readonly escape: Escape }[] => {
  const [program = '', ...rest] = command.argv
  const own = programName(program)
  const other = resolvedName(program)
  const fits = (pattern: RegExp | undefined, without: boolean): boolean =>
    pattern === undefined ? without : rest.some((token) => pattern.test(token))
  return ESCAPES.flatMap((escape) => {
    const { programs, flags, unless, stdin } = escape
    const name = [own, other].find((one) => one !== null && (programs.includes(one) || programs.includes('*')))
    if (name === undefined || name === null || (stdin === true && !stdinOpen)) return []
    return fits(flags, true) && !fits(unless, false) ? [{ name, escape }] : []
  })
}
