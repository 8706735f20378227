/** What a session may be granted, by the names that the protocol has for it. */
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
