/**
 * A seccomp(2) program for sandboxes. It denies system calls that create namespaces and mounts, use keyrings (which namespaces do not
 * separate), type on terminals (ioctl_tty(2)), create set-id files, or reach beyond the granted network.
 */

/** Offsets in struct seccomp_data of the call number, the architecture, and the low 32 bits of each argument. */
const NUMBER = 0
const ARCHITECTURE = 4
const argument = (index: number): number => 16 + 8 * index

/** linux/bpf_common.h. */
const LOAD = 0x20
const IF_EQUAL = 0x15
const IF_AT_LEAST = 0x35
const IF_ANY_BIT = 0x45
const AND = 0x54
const RETURN = 0x06
/** linux/seccomp.h. */
const ALLOW = 0x7fff_0000
const KILL = 0x8000_0000
const fail = (errno: number): Instruction => [RETURN, 0, 0, 0x0005_0000 | errno]
/** The same on all architectures below, errno(3). */
const EPERM = 1
const ENOSYS = 38
const EAFNOSUPPORT = 97

type Instruction = readonly [code: number, ifTrue: number, ifFalse: number, value: number]

/** Calls with the same number on all architectures, since Linux 5.1. */
const COMMON = {
  io_uring_setup: 425,
  io_uring_enter: 426,
  io_uring_register: 427,
  open_tree: 428,
  move_mount: 429,
  fsopen: 430,
  fsconfig: 431,
  fsmount: 432,
  fspick: 433,
  clone3: 435,
  openat2: 437,
  mount_setattr: 442,
  quotactl_fd: 443,
  fchmodat2: 452,
  open_tree_attr: 467,
} as const

const X64 = {
  ...COMMON,
  open: 2,
  ioctl: 16,
  socket: 41,
  socketpair: 53,
  clone: 56,
  creat: 85,
  chmod: 90,
  fchmod: 91,
  syslog: 103,
  mknod: 133,
  modify_ldt: 154,
  pivot_root: 155,
  acct: 163,
  mount: 165,
  umount2: 166,
  swapon: 167,
  swapoff: 168,
  reboot: 169,
  iopl: 172,
  ioperm: 173,
  init_module: 175,
  delete_module: 176,
  quotactl: 179,
  kexec_load: 246,
  add_key: 248,
  request_key: 249,
  keyctl: 250,
  openat: 257,
  mknodat: 259,
  fchmodat: 268,
  unshare: 272,
  perf_event_open: 298,
  open_by_handle_at: 304,
  setns: 308,
  finit_module: 313,
  kexec_file_load: 320,
  bpf: 321,
  userfaultfd: 323,
} as const

const ARM64: Readonly<Partial<Record<keyof typeof X64, number>>> = {
  ...COMMON,
  ioctl: 29,
  mknodat: 33,
  umount2: 39,
  mount: 40,
  pivot_root: 41,
  fchmod: 52,
  fchmodat: 53,
  openat: 56,
  quotactl: 60,
  acct: 89,
  unshare: 97,
  kexec_load: 104,
  init_module: 105,
  delete_module: 106,
  syslog: 116,
  reboot: 142,
  socket: 198,
  socketpair: 199,
  add_key: 217,
  request_key: 218,
  keyctl: 219,
  clone: 220,
  swapon: 224,
  swapoff: 225,
  perf_event_open: 241,
  open_by_handle_at: 265,
  setns: 268,
  finit_module: 273,
  bpf: 280,
  userfaultfd: 282,
  kexec_file_load: 294,
}

type Call = keyof typeof X64

interface Architecture {
  /** AUDIT_ARCH_… of linux/audit.h. */
  readonly audit: number
  readonly numbers: Readonly<Partial<Record<Call, number>>>
  /** Numbers from here belong to another calling convention, or null. */
  readonly foreignFrom: number | null
}

const ARCHITECTURES: Readonly<Record<string, Architecture>> = {
  x64: { audit: 0xc000_003e, numbers: X64, foreignFrom: 0x4000_0000 },
  arm64: { audit: 0xc000_00b7, numbers: ARM64, foreignFrom: null },
}

/** Denied with any arguments. */
const REFUSED: readonly Call[] = [
  'acct',
  'add_key',
  'bpf',
  'delete_module',
  'finit_module',
  'fsconfig',
  'fsmount',
  'fsopen',
  'fspick',
  'init_module',
  'io_uring_enter',
  'io_uring_register',
  'io_uring_setup',
  'ioperm',
  'iopl',
  'kexec_file_load',
  'kexec_load',
  'keyctl',
  'modify_ldt',
  'mount',
  'mount_setattr',
  'move_mount',
  'open_by_handle_at',
  'open_tree',
  'open_tree_attr',
  'perf_event_open',
  'pivot_root',
  'quotactl',
  'quotactl_fd',
  'reboot',
  'request_key',
  'setns',
  'swapoff',
  'swapon',
  'syslog',
  'umount2',
  'userfaultfd',
]
/** Their arguments are in memory, which a filter cannot read. Callers handle kernels without these calls. */
const UNKNOWN: readonly Call[] = ['clone3', 'openat2']

/** CLONE_NEW… of linux/sched.h. For clone(2), without CLONE_NEWTIME, whose bit belongs to the exit signal in that call. */
const NEW_NAMESPACES = 0x7e02_0000
const NEW_TIME = 0x80
/** S_ISUID and S_ISGID. */
const SPECIAL_RIGHTS = 0o6000
/** O_CREAT and the bit of O_TMPFILE. The mode counts only with these. */
const MAKES_A_FILE = 0x40_0040
/** TIOCSTI types on a terminal, TIOCLINUX pastes there. */
const TYPING = [0x5412, 0x541c] as const
/** AF_INET, AF_INET6 and AF_NETLINK, which a network namespace separates. AF_VSOCK would reach the host of a virtual machine. */
const FAMILIES = [2, 10, 16] as const
const AF_UNIX = 1
/** linux/net.h. The socket type without flags, SOCK_DGRAM, and SOCK_RAW, which AF_UNIX treats the same. */
const TYPE_BITS = 0xf
const DATAGRAMS = [2, 3] as const

const load = (offset: number): Instruction => [LOAD, 0, 0, offset]
const allow: Instruction = [RETURN, 0, 0, ALLOW]

const unlessBits = (index: number, bits: number): Instruction[] => [load(argument(index)), [IF_ANY_BIT, 0, 1, bits], fail(EPERM), allow]
const unlessMode = (flags: number, mode: number): Instruction[] => [
  load(argument(flags)),
  [IF_ANY_BIT, 0, 3, MAKES_A_FILE],
  ...unlessBits(mode, SPECIAL_RIGHTS),
]

type Rule = readonly [Call, readonly Instruction[]]

/** Calls that depend on their arguments. */
const JUDGED: readonly Rule[] = [
  ['clone', unlessBits(0, NEW_NAMESPACES)],
  ['unshare', unlessBits(0, NEW_NAMESPACES | NEW_TIME)],
  ['chmod', unlessBits(1, SPECIAL_RIGHTS)],
  ['fchmod', unlessBits(1, SPECIAL_RIGHTS)],
  ['fchmodat', unlessBits(2, SPECIAL_RIGHTS)],
  ['fchmodat2', unlessBits(2, SPECIAL_RIGHTS)],
  ['creat', unlessBits(1, SPECIAL_RIGHTS)],
  ['mknod', unlessBits(1, SPECIAL_RIGHTS)],
  ['mknodat', unlessBits(2, SPECIAL_RIGHTS)],
  ['open', unlessMode(1, 2)],
  ['openat', unlessMode(2, 3)],
  ['ioctl', [load(argument(1)), ...TYPING.flatMap((one): Instruction[] => [[IF_EQUAL, 0, 1, one], fail(EPERM)]), allow]],
]

const onlyFamilies = (families: readonly number[]): Rule => [
  'socket',
  [load(argument(0)), ...families.flatMap((one): Instruction[] => [[IF_EQUAL, 0, 1, one], allow]), fail(EAFNOSUPPORT)],
]

/** A connected pair of streams has only itself as a peer. A datagram socket of a pair can be reconnected and send to any path. */
const noDatagramPairs: Rule = [
  'socketpair',
  [
    load(argument(1)),
    [AND, 0, 0, TYPE_BITS],
    ...DATAGRAMS.flatMap((one): Instruction[] => [[IF_EQUAL, 0, 1, one], fail(EAFNOSUPPORT)]),
    allow,
  ],
]

/** The filter for this architecture in bwrap's format, or null if the architecture is not supported. `unixSockets` allows Unix sockets. */
export const callFilter = ({ unixSockets = false } = {}, architecture: string = process.arch): Buffer | null => {
  const known = Object.hasOwn(ARCHITECTURES, architecture) ? ARCHITECTURES[architecture] : undefined
  if (known === undefined) return null
  const { audit, numbers, foreignFrom } = known
  const rules: readonly Rule[] = [
    ...REFUSED.map((call) => [call, [fail(EPERM)]] as const),
    ...UNKNOWN.map((call) => [call, [fail(ENOSYS)]] as const),
    ...JUDGED,
    ...(unixSockets ? [onlyFamilies([AF_UNIX, ...FAMILIES])] : [onlyFamilies(FAMILIES), noDatagramPairs]),
  ]
  const program: Instruction[] = [
    load(ARCHITECTURE),
    // A program of another architecture uses other call numbers.
    [IF_EQUAL, 1, 0, audit],
    [RETURN, 0, 0, KILL],
    load(NUMBER),
    ...(foreignFrom === null ? [] : ([[IF_AT_LEAST, 0, 1, foreignFrom], fail(ENOSYS)] satisfies Instruction[])),
    ...rules.flatMap(([call, body]): Instruction[] => {
      const number = numbers[call]
      return number === undefined ? [] : [[IF_EQUAL, 0, body.length, number], ...body]
    }),
    allow,
  ]
  const bytes = Buffer.alloc(8 * program.length)
  for (const [at, [code, ifTrue, ifFalse, value]] of program.entries()) {
    bytes.writeUInt16LE(code, 8 * at)
    bytes.writeUInt8(ifTrue, 8 * at + 2)
    bytes.writeUInt8(ifFalse, 8 * at + 3)
    bytes.writeUInt32LE(value >>> 0, 8 * at + 4)
  }
  return bytes
}
