import { AppError, errorText } from '../../base/errors.ts'

/** How libp2p's text, several lines with stacks, names each address that failed. */
const FAILED_ADDRESS = /^\s*(\/\S+): (?:\w*Error: )?(.*)$/gm

const REASONS = [
  ['EADDRINUSE', 'the port is in use'],
  ['EACCES', 'this user may not take that port'],
  ['EADDRNOTAVAIL', 'this machine has no such address'],
] as const

const reasonOf = (text: string): string => REASONS.find(([code]) => text.includes(code))?.[1] ?? text

/** One line for a mesh that could not listen: which address, why, and what to do. `conflict` where another has the port, else `bad_config`. */
export const listenError = (listen: readonly string[], cause: unknown): AppError => {
  const text = errorText(cause)
  const failed = [...text.matchAll(FAILED_ADDRESS)].map(([, address = '', reason = '']) => `${address}: ${reasonOf(reason)}`)
  const what = failed.length > 0 ? failed.join('; ') : `${listen.join(', ')}: ${reasonOf(text.split('\n')[0] ?? '')}`
  const remedy = 'choose another address with --listen or `listen` in config.toml, or stop what holds it'
  return new AppError(text.includes('EADDRINUSE') ? 'conflict' : 'bad_config', `cannot listen on ${what}; ${remedy}`, { cause })
}
