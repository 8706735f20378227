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

/** Groups of capabilities. Requesting a group requests each member. A grant with any member also lists the group. */
export const CAPABILITY_GROUPS = { fs: ['fs.read', 'fs.write'] } as const satisfies Record<string, readonly Capability[]>

/** A name in a request or grant. */
export type CapabilityName = Capability | keyof typeof CAPABILITY_GROUPS

/** A limit, by its name in the protocol and the configuration. Bytes and milliseconds. */
export type LimitName =
  /** Output of one process, both streams together. */
  | 'max_output_bytes'
  /** Maximum size of one `fs.read` reply. */
  | 'max_file_read_bytes'
  | 'max_processes_per_session'
  /** Timeout of a command without its own. */
  | 'default_timeout_ms'
  /** Maximum duration of a command. */
  | 'hard_timeout_ms'
  | 'max_concurrent_sessions'
  /** Detached programs of all sessions together. */
  | 'max_detached_processes'
  /** Maximum and default duration of a detached program. */
  | 'max_detached_ms'

const GROUPS = Object.entries(CAPABILITY_GROUPS) as [keyof typeof CAPABILITY_GROUPS, readonly Capability[]][]

/** Names in a grant, which are each capability and each group with a granted member. */
export const capabilityNamesOf = (granted: Iterable<Capability>): CapabilityName[] => {
  const all = [...granted]
  return [...all, ...GROUPS.flatMap(([name, members]) => (members.some((one) => all.includes(one)) ? [name] : []))]
}

/** Capabilities of a name, or empty for an unknown name. */
export const capabilitiesOf = (name: string): readonly Capability[] =>
  GROUPS.find(([group]) => group === name)?.[1] ?? CAPABILITY_NAMES.filter((one) => one === name)
