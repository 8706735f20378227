/** What a session may be granted. */
export const CAPABILITY_NAMES = [
  'exec',
  'exec.input',
  'exec.shell',
  'exec.detach',
  'fs.read',
  'fs.write',
  'pty',
  'events',
  'target',
] as const
export type Capability = (typeof CAPABILITY_NAMES)[number]

/** Names of groups: whoever asks for a group asks for each member, and whoever is granted a member reads the group's name too. */
export const CAPABILITY_GROUPS = { fs: ['fs.read', 'fs.write'] } as const satisfies Record<string, readonly Capability[]>

/** What stands in a request and in a grant. */
export type CapabilityName = Capability | keyof typeof CAPABILITY_GROUPS

/** A limit in force, by its name in the protocol and in the configuration. Bytes and milliseconds. */
export type LimitName =
  /** Output of one process, both streams together. */
  | 'max_output_bytes'
  /** What one `fs.read` may give out. */
  | 'max_file_read_bytes'
  | 'max_processes_per_session'
  /** Of a command that names no time. */
  | 'default_timeout_ms'
  /** No command runs longer. */
  | 'hard_timeout_ms'
  | 'max_concurrent_sessions'
  /** Programs that may outlive their sessions, of all sessions together. */
  | 'max_detached_processes'
  /** No such program runs longer; what one gets that names no time. */
  | 'max_detached_ms'

const GROUPS = Object.entries(CAPABILITY_GROUPS) as [keyof typeof CAPABILITY_GROUPS, readonly Capability[]][]

/** The names that a grant lists: each capability, and each group with a member among them. */
export const capabilityNamesOf = (granted: Iterable<Capability>): CapabilityName[] => {
  const all = [...granted]
  return [...all, ...GROUPS.flatMap(([name, members]) => (members.some((one) => all.includes(one)) ? [name] : []))]
}

/** The capabilities that a name stands for; none where there is no such name. */
export const capabilitiesOf = (name: string): readonly Capability[] =>
  GROUPS.find(([group]) => group === name)?.[1] ?? CAPABILITY_NAMES.filter((one) => one === name)
