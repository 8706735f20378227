import { posix } from 'node:path'

import type { AllowedCommand } from './acl.ts'

/** A way in which a program does more than its name says, and what to allow instead. */
export interface Escape {
  readonly programs: readonly string[]
  /** Only where a token after the program fits one of these; without them, always. */
  readonly flags?: RegExp
  /** … and only where no token fits this. */
  readonly unless?: RegExp
  readonly risk: string
  readonly remedy: string
}

const OWN_SCRIPT = 'allow a script of your own by its absolute path, owned by root and without arguments'

/**
 * The usual suspects, after the public GTFOBins catalogue. An argv is pinned token for token, so what
 * counts here is what still varies: stdin, which the caller sends, files and settings that others may
 * write, and slots. The list helps an operator to see; it proves nothing about programs it lacks.
 */
export const ESCAPES: readonly Escape[] = [
  {
    programs: ['sh', 'bash', 'rbash', 'dash', 'ash', 'zsh', 'ksh', 'mksh', 'fish', 'csh', 'tcsh', 'busybox', 'toybox', 'pwsh'],
    risk: 'is a shell: it runs what it reads, also from the stdin that the caller sends',
    remedy: OWN_SCRIPT,
  },
  {
    programs: ['python', 'perl', 'ruby', 'node', 'nodejs', 'bun', 'deno', 'lua', 'luajit', 'php', 'tclsh', 'wish', 'expect', 'osascript'],
    risk: 'is an interpreter: it runs what it reads, also from the stdin that the caller sends, and loads modules from writable places',
    remedy: OWN_SCRIPT,
  },
  {
    programs: ['R', 'Rscript', 'julia', 'guile', 'irb', 'ghci', 'groovy', 'jjs', 'jrunscript', 'gdb', 'lldb', 'bc', 'dc', 'm4'],
    risk: 'is an interpreter: it runs what it reads, also from the stdin that the caller sends',
    remedy: OWN_SCRIPT,
  },
  {
    programs: ['awk', 'gawk', 'mawk', 'nawk'],
    risk: 'runs a program that can start commands and write files (system(), print to a file or a pipe)',
    remedy: OWN_SCRIPT,
  },
  {
    programs: ['sed', 'gsed'],
    flags: /^(-[a-z]*[if]|--in-place|--file)|^s(.).*\2.*\2[gpiImM0-9]*[ew]|(^|[;{}/0-9$ ])[ewW]( +\S|$)/,
    risk: 'can rewrite files (-i, w) and start commands (e), or reads its program from a file (-f)',
    remedy: 'use an expression without e and w and no -i or -f',
  },
  {
    programs: ['vi', 'vim', 'nvim', 'view', 'vimdiff', 'ex', 'ed', 'nano', 'pico', 'emacs', 'joe', 'micro', 'visudo', 'vipw', 'vigr'],
    risk: 'is an editor: it starts commands and writes any file, and takes keys from stdin',
    remedy: 'use cat to show a file; to change one, ' + OWN_SCRIPT,
  },
  {
    programs: ['less', 'more', 'most', 'pg', 'man'],
    risk: 'is a pager: it can start a shell and an editor',
    remedy: 'use cat, head or tail',
  },
  {
    programs: [
      'systemctl',
      'journalctl',
      'loginctl',
      'machinectl',
      'networkctl',
      'timedatectl',
      'hostnamectl',
      'localectl',
      'coredumpctl',
      'busctl',
    ],
    unless: /^--no-pager$/,
    risk: 'starts a pager where it finds a terminal, and a pager starts a shell',
    remedy: 'add "--no-pager"',
  },
  {
    programs: ['systemctl'],
    flags: /^(edit|link|set-environment|import-environment|-H|--host.*|-M|--machine.*|--root.*)$/,
    risk: 'changes what the system runs',
    remedy: OWN_SCRIPT,
  },
  {
    programs: ['journalctl'],
    flags: /^(--cursor-file|--vacuum-|--rotate|--flush|--relinquish-var|--setup-keys|-D|--directory|--file|--root)/,
    risk: 'writes, deletes or reads journals of another place',
    remedy: 'drop the flag',
  },
  {
    programs: ['git', 'hg', 'svn'],
    risk: 'runs hooks, filters, aliases, pagers and transports that the repository or HOME configures',
    remedy: OWN_SCRIPT,
  },
  {
    programs: ['curl'],
    flags:
      /^(-[A-Za-z#]*[oOJTKFcDE]|--output|--remote-|--upload-file|--config|--form|--cookie-jar|--dump-header|--trace|--libcurl|--engine|--stderr|--etag-save|--hsts|--alt-svc|--netrc|--create-dirs|[Ff][Ii][Ll][Ee]:)|^(@|.*=@)/,
    risk: 'can write and read local files (-o, -O, -T, -K, -D, @FILE, file://)',
    remedy: 'let it print to stdout, with an http:// or https:// address in the rule',
  },
  {
    programs: ['curl'],
    unless: /^(-q|--disable)$/,
    risk: 'reads ~/.curlrc, which can add any option',
    remedy: 'add "-q" as the first argument',
  },
  {
    programs: ['wget', 'aria2c', 'axel'],
    risk: 'writes files, and its flags and settings can post local files and start programs',
    remedy: 'use curl -q, which prints to stdout',
  },
  {
    programs: ['tar', 'bsdtar', 'gtar'],
    flags:
      /^(--checkpoint-action|--to-command|--use-compress-program|-[A-Za-z]*[IF]|--rsh-command|--rmt-command|--info-script|--new-volume-script|--absolute-names|-[A-Za-z]*P)/,
    risk: 'starts other programs or leaves its directory (--checkpoint-action, --to-command, -I, -F, -P)',
    remedy: 'drop the flag',
  },
  {
    programs: ['tar', 'bsdtar', 'gtar', 'unzip', 'cpio', 'pax', '7z', '7za', 'ar'],
    flags: /^(-?[A-Za-z]*x|--extract|--get|-i|-d|e$)/,
    risk: 'unpacks what an archive holds over what is there, also from the stdin that the caller sends',
    remedy: OWN_SCRIPT,
  },
  {
    programs: ['zip'],
    flags: /^(-[A-Za-z]*T|--test|--unzip-command)/,
    risk: 'starts another program to test an archive (-TT)',
    remedy: 'drop the flag',
  },
  {
    programs: ['find', 'gfind', 'fd', 'fdfind'],
    flags: /^(-exec|-ok|-delete|-fprint|-fls|-files0-from|-x$|-X$|--exec)/,
    risk: 'starts programs, deletes or writes (-exec, -ok, -delete, -fprint)',
    remedy: 'use -print alone, or ' + OWN_SCRIPT,
  },
  {
    programs: ['xargs', 'parallel', 'run-parts'],
    risk: 'starts commands that it builds from its input, which the caller sends',
    remedy: OWN_SCRIPT,
  },
  {
    programs: [
      'env',
      'nohup',
      'timeout',
      'nice',
      'ionice',
      'chrt',
      'taskset',
      'setsid',
      'stdbuf',
      'setarch',
      'flock',
      'watch',
      'time',
      'script',
      'entr',
    ],
    risk: 'starts another program, which escapes the check of argv[0]',
    remedy: 'allow that program itself, by its absolute path',
  },
  {
    programs: ['strace', 'ltrace', 'unshare', 'nsenter', 'chroot', 'start-stop-daemon', 'systemd-run', 'screen', 'tmux', 'ld.so'],
    risk: 'starts another program, in surroundings of its own making',
    remedy: 'allow that program itself, by its absolute path',
  },
  {
    programs: ['sudo', 'doas', 'su', 'runuser', 'pkexec', 'setpriv', 'capsh'],
    risk: 'runs a program as another user, beyond what this daemon may do',
    remedy: 'run the daemon as the user that the task needs',
  },
  {
    programs: ['ssh', 'scp', 'sftp', 'rsync', 'mosh', 'autossh', 'ssh-keygen', 'ssh-agent'],
    risk: 'starts programs from its flags and from ~/.ssh/config (ProxyCommand, -e, -D), and goes on to other hosts',
    remedy: 'put the other host on the mesh and list this agent in its own ACL',
  },
  {
    programs: ['nc', 'ncat', 'netcat', 'socat', 'telnet', 'openssl', 'tftp', 'ftp', 'lftp'],
    risk: 'carries data between files, programs and the network',
    remedy: OWN_SCRIPT,
  },
  {
    programs: ['docker', 'podman', 'nerdctl', 'ctr', 'crictl', 'kubectl', 'lxc', 'incus', 'virsh', 'vagrant'],
    risk: 'commands a container or machine engine, which is as good as root',
    remedy: OWN_SCRIPT,
  },
  {
    programs: ['apt', 'apt-get', 'aptitude', 'dpkg', 'rpm', 'yum', 'dnf', 'zypper', 'apk', 'pacman', 'snap', 'flatpak', 'brew'],
    risk: 'runs the scripts of packages, as root',
    remedy: OWN_SCRIPT,
  },
  {
    programs: [
      'pip',
      'pipx',
      'npm',
      'npx',
      'yarn',
      'pnpm',
      'gem',
      'cargo',
      'go',
      'composer',
      'make',
      'gmake',
      'cmake',
      'ninja',
      'rake',
      'mvn',
      'gradle',
      'ant',
    ],
    risk: 'runs what packages or build files say',
    remedy: OWN_SCRIPT,
  },
  {
    programs: ['tee', 'dd', 'sponge'],
    risk: 'writes the stdin that the caller sends into a file',
    remedy: OWN_SCRIPT,
  },
  {
    programs: ['crontab', 'at', 'batch', 'logrotate', 'chpasswd', 'passwd', 'useradd', 'usermod', 'chsh'],
    risk: 'changes what runs later or who may log in',
    remedy: OWN_SCRIPT,
  },
  {
    programs: ['psql', 'mysql', 'mariadb', 'sqlite', 'sqlite3', 'mongo', 'mongosh', 'redis-cli', 'mail', 'mailx', 'mutt'],
    risk: 'takes commands from stdin, some of which start programs or write files',
    remedy: OWN_SCRIPT,
  },
  {
    programs: ['nmap', 'tcpdump', 'tshark'],
    flags: /^(--script|--interactive|-i[LR]|-o[NXSGA]|-[A-Za-z]*[wz]$)/,
    risk: 'runs scripts or programs, or writes files, with this flag',
    remedy: 'drop the flag',
  },
  {
    programs: ['ip', 'tc'],
    flags: /^(netns|-b|-batch|-force)$/,
    risk: 'starts programs (netns exec) or reads commands from a file (-batch)',
    remedy: 'name the one object that is to be shown',
  },
  {
    programs: ['sort', 'split'],
    flags: /^(-[a-z]*o|--output|--compress-program|--filter|--files0-from)/,
    risk: 'writes a file or starts a program with this flag',
    remedy: 'drop the flag',
  },
  {
    programs: ['kill', 'renice', 'prlimit'],
    flags: /^<INT>$/,
    risk: 'lets the caller choose any process of the daemon’s user, the daemon too',
    remedy: OWN_SCRIPT,
  },
]

/** Programs whose first plain argument is a script. */
export const SCRIPT_RUNNERS: readonly string[] = ESCAPES.slice(0, 3).flatMap((escape) => escape.programs)

/** The name that a program is known by: `/usr/bin/python3.12` is python. */
export const programName = (argv0: string): string => {
  const base = posix.basename(argv0)
  if (/^ld(-linux.*|-musl.*)?\.so(\.\d+)?$/.test(base)) return 'ld.so'
  return KNOWN.has(base) ? base : base.replace(/[-.0-9]+$/, '')
}

const KNOWN: ReadonlySet<string> = new Set(ESCAPES.flatMap((escape) => escape.programs))

/** What a command can do beyond what it says. */
export const escapesOf = (command: AllowedCommand): Escape[] => {
  const [program = '', ...rest] = command.argv
  const name = programName(program)
  const fits = (pattern: RegExp): boolean => rest.some((token) => pattern.test(token))
  return ESCAPES.filter(
    ({ programs, flags, unless }) =>
      programs.includes(name) && (flags === undefined || fits(flags)) && !(unless !== undefined && fits(unless)),
  )
}
