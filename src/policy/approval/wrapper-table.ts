/**
 * How the words of a program are read that may start another. Whatever a row does not say is not understood, and what is not
 * understood is opaque.
 */
export interface WrapperRow {
  readonly names: readonly string[]
  /** Options that start nothing by themselves, with their value in the same word. */
  readonly plain?: RegExp
  /** Options whose value is the next word. */
  readonly valued?: RegExp
  /** The option whose value, the next word, is a text for a shell. */
  readonly text?: RegExp
  /** Words between the options and what is started, and what each looks like. */
  readonly skip?: readonly RegExp[]
  /**
   * `command`: another command, to its end. `joined`: words that are put together to a text for a shell. `own`: words of its own,
   * with options among them. `unknown`: what it starts is not told by its words, or is in surroundings that nobody knows here.
   */
  readonly behind: 'command' | 'joined' | 'own' | 'unknown'
  /** Words that nobody knows follow the command. */
  readonly open?: true
  /** Of its own words: those that start something. */
  readonly starts?: RegExp
  /** What its first own word, or the value of this option, must be: a program in its language that starts nothing. */
  readonly script?: { readonly option: RegExp; readonly plain: RegExp }
  /** Its subcommands that start nothing by their words, but for words that fit; any other subcommand is not understood. */
  readonly subcommands?: ReadonlyMap<string, RegExp>
}

const row = (names: string, how: Omit<WrapperRow, 'names'>): WrapperRow => ({ names: names.split(' '), ...how })

const NEVER = /^\b$/
const subcommands = (...given: readonly (readonly [names: string, starts?: RegExp])[]): ReadonlyMap<string, RegExp> =>
  new Map(given.flatMap(([names, starts]) => names.split(' ').map((name) => [name, starts ?? NEVER] as const)))

/** A place on another host, which is reached by a program of the user's settings. */
const REMOTE = /^(--[a-z-]+=)?[^/]*:/
const SED_ADDRESS = String.raw`(\d+|\$|/([^/\\\n]|\\[^\n])*/)`
const SED_COMMAND = String.raw`(${SED_ADDRESS}(,${SED_ADDRESS})?!?)?([pdqDNGHhgxnPQ=]|s/([^/\\\n]|\\[^\n])*/([^/\\\n]|\\[^\n])*/[gpiIM0-9]*)`

/** Another command follows: only what surrounds it changes. */
const COMMANDS: readonly WrapperRow[] = [
  row('timeout gtimeout', {
    plain: /^(-[fpv]+|-[ks].+|--(preserve-status|foreground|verbose)|--(signal|kill-after)=.*)$/,
    valued: /^(-k|-s|--signal|--kill-after)$/,
    skip: [/^\d+(\.\d*)?[smhd]?$/],
    behind: 'command',
  }),
  row('nice gnice', { plain: /^(-n.+|--?\d+|--adjustment=.*)$/, valued: /^(-n|--adjustment)$/, behind: 'command' }),
  row('nohup gnohup', { behind: 'command' }),
  row('setsid', { plain: /^(-[cfw]+|--ctty|--fork|--wait)$/, behind: 'command' }),
  row('stdbuf gstdbuf', {
    plain: /^(-[ioe].+|--(input|output|error)=.*)$/,
    valued: /^(-[ioe]|--(input|output|error))$/,
    behind: 'command',
  }),
  row('ionice', { plain: /^(-t|--ignore|-[cn].+|--class(data)?=.*)$/, valued: /^(-[cn]|--class|--classdata)$/, behind: 'command' }),
  row('time gtime', {
    plain: /^(-[apqvV]+|--(portability|append|verbose|quiet))$/,
    valued: /^(-[fo]|--format|--output)$/,
    behind: 'command',
  }),
  row('chrt', {
    plain: /^(-[abfiorvR]+|--(batch|fifo|idle|other|rr|reset-on-fork|verbose))$/,
    skip: [/^\d+$/],
    behind: 'command',
  }),
  row('taskset', { plain: /^(-[ac]+|--all-tasks|--cpu-list)$/, skip: [/^[0-9a-fA-Fx,:-]+$/], behind: 'command' }),
  row('prlimit', {
    plain: /^--(as|core|cpu|data|fsize|locks|memlock|msgqueue|nice|nofile|nproc|rss|rtprio|rttime|sigpending|stack)=[0-9a-z:]+$/,
    behind: 'command',
  }),
  row('flock', {
    plain: /^(-[senxuoF]+|-[wE].+|--(shared|exclusive|nonblock|nb|unlock|close|no-fork)|--(timeout|conflict-exit-code)=.*)$/,
    valued: /^(-[wE]|--timeout|--conflict-exit-code)$/,
    text: /^(-c|--command)$/,
    skip: [/^[^-]/],
    behind: 'command',
  }),
  row('script', {
    plain: /^(-[aefq]+|--(append|return|flush|quiet))$/,
    text: /^(-[aefq]*c|--command)$/,
    behind: 'unknown',
  }),
  row('watch', {
    plain: /^(-[bcdegtp]+|-n.+|--(beep|color|errexit|chgexit|no-title|precise)|--interval=.*)$/,
    valued: /^(-n|--interval)$/,
    behind: 'joined',
  }),
  row('strace', { plain: /^(-[cCfFqrtTvxy]+|-[es].+)$/, valued: /^-[esa]$/, behind: 'command' }),
  row('valgrind', { plain: /^(-[qv]|--(quiet|verbose|tool=\w+|leak-check=\w+|track-origins=\w+|error-exitcode=\d+))$/, behind: 'command' }),
  row('xargs gxargs', {
    plain:
      /^(-[0rtxpo]+|-[ELnPsad].+|-[el].*|--(null|no-run-if-empty|verbose|exit|interactive|open-tty)|--(arg-file|delimiter|eof|max-lines|max-args|max-procs|max-chars|process-slot-var)=.*)$/,
    valued: /^(-[ELnPsad]|--(arg-file|delimiter|max-args|max-procs|max-chars))$/,
    behind: 'command',
    open: true,
  }),
]

/** Words of their own, some of which start a program or hold a text that does. */
const OWN: readonly WrapperRow[] = [
  row('git', {
    plain: /^(-P|--(no-pager|version|bare|no-optional-locks|no-replace-objects|(literal|glob|noglob|icase)-pathspecs))$/,
    behind: 'own',
    // A name that is none of its own may be an alias; another directory has settings of its own.
    subcommands: subcommands(
      [
        'add apply blame branch cat-file checkout clean commit count-objects describe fsck gc init ls-files ls-tree merge-base mv reflog ' +
          'reset restore rev-list rev-parse rm shortlog show-ref status switch tag version worktree stash',
        /^--(t$|t=|te|ed|fi)|::/,
      ],
      ['diff log show', /^--(ext|te|ou)/],
      ['cherry-pick merge revert', /^--(st|ed)|^-[A-Za-z]*[sXe]/],
      // A place on another host is reached by ssh, as the user's settings say, and `a:b` is one.
      ['clone fetch pull push ls-remote remote', /^--(u|rec|e|st|co|te)|^-[A-Za-z]*[sXuco]|::|^(?!(https?|git|file):\/\/)[^/]*:/],
      ['grep', /^--(o|te)|^-[A-Za-z]*O/],
    ),
  }),
  row('tar bsdtar gtar', {
    plain:
      /^(-[cxtruvzjJZafkpmhSOWd]+C?|-[0-9]+|--(create|extract|get|list|append|update|verbose|gzip|bzip2|xz|zstd|null|no-same-owner|no-same-permissions|numeric-owner|totals|wildcards|keep-old-files|overwrite|help|version)|--(file|directory|exclude|strip-components|owner|group|mtime|sort)=.*)$/,
    // Its first word may hold options without a dash.
    starts: /^(--file=)?[^/]*:|^(?=[A-Za-z]*$)[^IFT]*[IFT]/,
    behind: 'own',
  }),
  row('cpio pax', { plain: /^-[itdumvoap0rw]+$/, starts: REMOTE, behind: 'own' }),
  row('zip', { plain: /^(-[0-9rqjmvyXoDlu]+|--(quiet|recurse-paths|junk-paths|help|version))$/, behind: 'own' }),
  row('rsync', {
    plain:
      /^(-[avzrlptgoDnhPuHAXxcqi]+|--(archive|verbose|compress|recursive|dry-run|delete|progress|stats|partial|checksum|update|version)|--(exclude|include)=.*)$/,
    starts: REMOTE,
    behind: 'own',
  }),
  row('sed gsed', {
    plain: /^(-[nErsuzi]+|--(quiet|silent|regexp-extended|separate|unbuffered|null-data|in-place|sandbox|posix|help|version))$/,
    script: { option: /^(-[nErsuz]*e|--expression)$/, plain: new RegExp(`^${SED_COMMAND}(;${SED_COMMAND})*$`) },
    behind: 'own',
  }),
  row('awk gawk mawk nawk', {
    plain: /^(-F.+|-v.+|--(posix|traditional|version|help|sandbox|re-interval|csv))$/,
    valued: /^-[Fv]$/,
    starts: /system|getline|[|@]/,
    behind: 'own',
  }),
  row('make gmake', {
    plain: /^(-[Bknsiqtw]+|-j\d*|--(keep-going|dry-run|silent|quiet|always-make|version|help)|--jobs=\d+)$/,
    starts: /=/,
    behind: 'own',
  }),
  row('npm', { behind: 'own', subcommands: subcommands(['ls list outdated ping root prefix bin whoami', /^-/], ['--version']) }),
  row('yarn pnpm', { behind: 'own', subcommands: subcommands(['list ls why outdated licenses', /^-/], ['--version']) }),
  row('openssl', {
    behind: 'own',
    subcommands: subcommands([
      'version dgst x509 rand base64 enc verify pkey rsa sha256 asn1parse crl',
      /^--?(engine|provider|config|propquery|keyform)/,
    ]),
  }),
  row('sort gsort', {
    plain:
      /^(-[bdfghiMnRrVcCmsuz]+|-[ktoS].+|--(ignore-leading-blanks|dictionary-order|ignore-case|general-numeric-sort|human-numeric-sort|numeric-sort|random-sort|reverse|version-sort|check|merge|stable|unique|zero-terminated|help|version)|--(key|field-separator|output|buffer-size|parallel)=.*)$/,
    valued: /^-[bdfghiMnRrVcCmsuz]*[ktoS]$/,
    behind: 'own',
  }),
  row('split gsplit', {
    plain: /^(-[dexu]+|-[ablnCt].+|--(bytes|lines|number|suffix-length|additional-suffix)=.*|--(verbose|help|version))$/,
    valued: /^-[ablnCt]$/,
    behind: 'own',
  }),
  row('ip', {
    plain: /^-(4|6|br|brief|c|color|d|details|j|json|o|oneline|p|pretty|s|stats)$/,
    behind: 'own',
    subcommands: subcommands(['addr address a link l route r rule neigh neighbour n maddr']),
  }),
  row('install ginstall', {
    plain:
      /^(-[bcCdDpTvZ]+|-[gmoSt].+|--(backup|compare|directory|preserve-timestamps|no-target-directory|verbose|help|version)|--(group|mode|owner|suffix|target-directory)=.*)$/,
    valued: /^-[bcCdDpTvZ]*[gmoSt]$/,
    behind: 'own',
  }),
  row('cc gcc g++ c++ cpp c89 c99 gfortran clang clang++ tcc', {
    plain:
      /^-([cESgvw]|O[0-3sgz]?|g\d|W(all|extra|error|no-[a-z-]+)|[IDUL].+|l[a-z0-9_]+|std=[a-z0-9+]+|fPIC|fpic|pthread|shared|static|MM?D?|m32|m64|pedantic)$/,
    valued: /^-[oIDUL]$/,
    starts: /^@/,
    behind: 'own',
  }),
  row('wget', {
    plain: /^(-(q|nv|c|S|nc|N)|--(quiet|no-verbose|spider|version)|--(timeout|tries|output-document)=.*)$/,
    valued: /^-[OTt]$/,
    behind: 'own',
  }),
  row('rg', {
    plain:
      /^(-[0FHILNPSUVachilnopqsuvwxz.]+|-[ABCEMTdefgmrt].+|--(after-context|before-context|case-sensitive|color|context|count|count-matches|encoding|files|files-with-matches|files-without-match|fixed-strings|follow|glob|hidden|iglob|ignore-case|invert-match|json|line-number|max-columns|max-count|max-depth|max-filesize|multiline|no-config|no-filename|no-heading|no-ignore|no-line-number|no-messages|null|only-matching|pcre2|pretty|quiet|regexp|replace|smart-case|sort|stats|text|trim|type|type-list|type-not|version|vimgrep|with-filename|word-regexp)(=.*)?)$/,
    valued: /^-[ABCEMTdefgmrt]$/,
    behind: 'own',
  }),
  row('fd fdfind', {
    plain:
      /^(-[01FHILagilpsu]+|-[ESdetcoj].+|--(absolute-path|case-sensitive|color|exclude|extension|fixed-strings|follow|full-path|glob|hidden|ignore-case|max-depth|max-results|min-depth|no-ignore|print0|regex|size|type|version)(=.*)?)$/,
    valued: /^-[ESdetcoj]$/,
    behind: 'own',
  }),
  row('diff3', { plain: /^(-[aAeEimTxX3]+|--(easy-only|ed|merge|overlap-only|show-all|show-overlap|text|help|version))$/, behind: 'own' }),
  // `--plugin` loads code.
  row('ar nm ranlib objcopy objdump strip gcc-ar gcc-nm gcc-ranlib', {
    plain:
      /^(-[A-Za-z0-9]+|--(all-headers|demangle|disassemble|disassemble-all|dynamic|dynamic-syms|file-headers|full-contents|help|line-numbers|print-size|private-headers|reloc|section-headers|size-sort|source|strip-all|strip-debug|strip-unneeded|syms|undefined-only|version))$/,
    starts: /^@/,
    behind: 'own',
  }),
  row('iptables', {
    plain:
      /^(-[ACDFILNPRSXZdgijlmnopstvwx]+|--(append|comment|ctstate|delete|dport|exact|icmp-type|insert|jump|line-numbers|list|list-rules|match|numeric|sport|state|table|verbose|version|wait))$/,
    behind: 'own',
  }),
  row('tc', { plain: /^-(d|details|s|stats|p|pretty|j|json)$/, behind: 'own', subcommands: subcommands(['qdisc class filter monitor']) }),
  row('systemctl', {
    plain:
      /^(-[alq]+|-[npto].+|--(all|failed|full|no-ask-password|no-block|no-legend|no-pager|now|plain|quiet|system|user|value)|--(lines|output|property|state|type)=.*)$/,
    valued: /^-[npto]$/,
    behind: 'own',
    // A path is a unit that whoever asks has written; another host or root has units of its own.
    subcommands: subcommands([
      'cat daemon-reload disable enable get-default is-active is-enabled is-failed is-system-running kill list-dependencies list-jobs list-sockets ' +
        'list-timers list-unit-files list-units mask reload reload-or-restart reset-failed restart show start status stop try-restart unmask',
      /\/|^(-[A-Za-z]*[HM]|--(h|im|m|r))/,
    ]),
  }),
  row('nmap', { plain: /^-([nFv46]+|p[0-9,-]+|s[STUV]|P[n0]|T[0-5])$/, behind: 'own' }),
  row('tcpdump', { plain: /^-[nvpqtAxXe]+$/, valued: /^-[nvpqtAxXe]*[ci]$/, behind: 'own' }),
]

/** What they start, or where, is not told by their words; or they have a language of their own in which anything can be said. */
const UNKNOWN =
  'chroot setarch linux32 linux64 i386 x86_64 uname26 entr dbus-run-session dbus-launch unbuffer rlwrap ltrace perf rr gdbserver unshare nsenter proot fakeroot fakechroot bwrap firejail aa-exec runcon ' +
  'start-stop-daemon daemonize systemd-run screen tmux ld.so choom uclampset numactl cgexec cpulimit faketime torsocks proxychains xvfb-run eatmydata tini dumb-init chpst softlimit envdir setuidgid ' +
  'sudo doas su runuser pkexec setpriv capsh run0 sg newgrp gosu su-exec ssh scp sftp sshpass mosh autossh parallel run-parts socat at batch crontab logrotate hyperfine nodemon ' +
  'docker podman nerdctl ctr crictl kubectl oc helm lxc incus virsh vagrant npx pnpx bunx uvx pipx corepack java ' +
  'vi vim rvim gvim nvim view rview vimdiff ex ed nano pico emacs joe jed micro kak hx mc mcedit editor sensible-editor visudo vipw vigr ' +
  'less more most pg man pager sensible-pager bat batcat zless zmore sqlite sqlite3 psql mysql mariadb mongo mongosh lftp ftp mail mailx mutt ' +
  'yash posh osh ysh lksh pdksh sash scsh nu elvish xonsh hush lash bash-static zsh-static gdb lldb ghci jshell ' +
  'cttyhack openvt tcpsvd udpsvd inetd crond telnetd udhcpc udhcpc6 dhclient ntpd zcip getty inotifyd uevent popmaildir switch_root ifup ifdown mdev mount ' +
  'runsv runsvdir s6-setuidgid execlineb catatonit daemon xterm xinit startx systemd-inhibit systemd-cat systemd-nspawn systemd-socket-activate ' +
  'coredumpctl machinectl ssh-agent gpg-agent ldd chronic ifne mispipe pee lckdo zrun parset pdsh dsh clush mpirun mpiexec srun salloc sbatch qsub ' +
  'watchexec watchmedo reflex fzf xdotool qemu-x86_64 qemu-x86_64-static box64 wine catchsegv heaptrack trace-cmd uftrace bpftrace dtrace stap schedtool ' +
  'nc ncat netcat telnet hg svn cargo rustup go cmake ninja rake mvn gradle ant pip poetry uv composer gem bundle just tox conda mamba pixi nix nix-shell guix ' +
  'ansible ansible-playbook ansible-pull ansible-console terraform tofu packer puppet chef-client salt-call rclone restic borg openvpn pppd ' +
  'xdg-open open sensible-browser x-www-browser w3m lynx links elinks redis-cli groff troff tex latex pdftex pdflatex xelatex gs tig ranger nnn vidir vipe ' +
  'apt apt-get aptitude dpkg rpm yum dnf zypper apk pacman snap flatpak ' +
  // Run the command that their words name, around it or for each of something.
  'agetty autoexpect bear buildah cage ccache coresched distcc sccache icecc dtach abduco zellij enosys fsck mkfs gprofng grc gtester lli logsave luit lxc-attach lxc-execute lxc-unshare ' +
  'lxc-usernsexec memusage msgexec msgfilter multitime multitail lnav not pexec pg_virtualenv pidstat pipesz procmail maildrop run-mailcap runc crun schroot pbuilder sbuild mmdebstrap scan-build ' +
  'scriptlive service setlock sdiff sotruss supervise svscan timed-run torify tsp ttyd ttyrec asciinema websockify xtrace login sulogin invoke-rc.d deb-systemd-invoke debconf dpkg-architecture ' +
  'checkinstall libtool apptainer singularity toolbox distrobox flatpak-spawn firecracker kernel-install etcdctl consul envconsul nq fq pueue foreman honcho pm2 forever ' +
  // … on macOS, and by other names.
  'arch caffeinate sandbox-exec taskpolicy launchctl xcrun xcodebuild swift dtruss gchroot gruncon sudo-rs su-rs systemd-notify systemd-dissect systemd-vmspawn incrontab fcrontab anacron ' +
  // Run each of the files that they are given, or have a language in which a file says what runs.
  'alpine ansible-test apache2 apache2ctl apachectl httpd nginx autoconf autoheader autoreconf autom4te bashbug bconsole bee bundler cobc codex csvtool dosbox easyrsa eb genie gitea ksshell ' +
  'lxd msfconsole mypy needrestart neofetch opencode opkg pkg rsyslogd runscript tmate xdg-user-dir yelp zathura bc dc m4 node-gyp rgvim gvimdiff evim vimtutor rnano tnftp s-nail bsd-mailx ' +
  // Call a service that starts programs.
  'busctl dbus-send dbus-daemon gdbus qdbus gio gapplication varlinkctl systemd-mount supervisord supervisorctl ' +
  // Have an option, a key or a language that starts one, or load code that they name.
  'ld gold cpan prove perlbug perldoc pydoc pdb ipython bpython ptpython pygmentize erb pry byebug cowsay cowthink exiftool pandoc octave gnuplot maxima sage ocaml erl iex elixir mix sbcl clisp racket swipl ' +
  'gforth scala sbt kotlin dotnet mono qjs gjs cjs slsh pike newlisp rc es convert magick mogrify identify montage composite blender gimp inkscape soffice libreoffice mpv ' +
  'nroff pic dvips etex pdfetex luatex lualatex xetex latexmk mpost mf asy bzless bzmore xzless xzmore lzless lzmore zstdless lv pspg delta emacsclient emacs-nox emacs-gtk emacs-lucid ' +
  'xemacs jmacs jpico jstar rjoe red ne zile mg jove nvi elvis vile gedit kate geany code codium subl cscope crash debugfs tdbtool iftop hping3 ispell ncdu ncftp minicom scanmem top htop atop ' +
  'gcore gdbtui strace-log-merge gpg gpg2 gpgsm gpg-connect-agent gpgconf dirmngr ssh-keygen ssh-add ssh-copy-id sshfs sshd slogin dbclient plink pscp psftp rsh rlogin rcp sshuttle ' +
  'ksu sudoedit super calife please gh glab hub jj scalar gitk dnsmasq wg-quick openconnect vpnc stunnel xinetd tcpserver certbot lego dehydrated facter knife latexindent ' +
  'smbclient tshark wireshark dumpcap ettercap scrot rtorrent aria2c yt-dlp youtube-dl sqlmap tailscale task tasksh rpmquery rpmverify rpmdb rustc rustdoc ghc runghc stack cabal opam dune ' +
  'duckdb mysqlsh pgcli mycli litecli cqlsh sqlplus isql pg_ctl pg_ctlcluster aws az gcloud ctest cpack bugpoint opt llc jdb javac pkcs11-tool p11tool mdadm smartd dump restore star ' +
  'chromium google-chrome firefox x-terminal-emulator gnome-terminal konsole kitty alacritty foot wezterm urxvt rxvt terminator xfce4-terminal rofi dmenu_run i3-msg swaymsg'

export const WRAPPER_ROWS: readonly WrapperRow[] = [...COMMANDS, ...OWN, row(UNKNOWN, { behind: 'unknown' })]

const BY_NAME: ReadonlyMap<string, WrapperRow> = new Map(WRAPPER_ROWS.flatMap((one) => one.names.map((name) => [name, one] as const)))

export const wrapperRow = (name: string): WrapperRow | null => BY_NAME.get(name) ?? null
