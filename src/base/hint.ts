import { shellWords } from './format.ts'

/** Options of a command line that a hint about it repeats. */
export interface GivenOptions {
  readonly program: string
  readonly options: readonly (readonly [name: string, value: string])[]
}

export const NONE_GIVEN: GivenOptions = { program: '', options: [] }

/** Options that select the daemon, for every program that takes them. */
const INSTANCE = ['name', 'data-dir']
/** Options that have this meaning for the same program only. */
const OWN = ['api', 'config', 'exec-acl']
/** Programs that find the daemon by their configuration or environment. */
const WITHOUT_INSTANCE = ['x0x mcp', 'x0x rexd', 'x0x console', 'rexd', 'rexec']

/** The same program under a second name. */
const ALIASES: Readonly<Record<string, string>> = { 'x0x console': 'rexec', 'x0x rexd': 'rexd' }

/**
 * A command of this machine in a hint, after a lead-in or an opening parenthesis. A command for another machine has another lead-in, because
 * another daemon is meant there.
 */
const COMMAND =
  /(?<=\b(?:Try|Next|See|[Tt]o (?:continue|rename it|see (?:connected agents|more output)|stop one|wait)|Retry the hosts where it (?:did not run|may have run)|[Oo]n this (?:machine|one)|[Ff]or requests of this agent|[Tt]ake it back|[Tt]o pair with another machine|not listed): |-> |&& |\((?:see )?)(?:x0x (?:ui|desk|bundle|mcp|rexd|console)|x0xd?|rexd|rexec)(?= )/g

export const givenOptions = (
  program: string,
  line: { readonly has: (name: string) => boolean; readonly value: (name: string) => string | null },
): GivenOptions => ({
  program,
  options: [...INSTANCE, ...OWN].flatMap((name) => (line.has(name) ? [[name, line.value(name) ?? ''] as const] : [])),
})

/** Adds the options that the user gave to the commands of a hint, so that they can be pasted. Hints of a daemon arrive as text. */
export const pasteable = (hint: string, { program, options }: GivenOptions): string =>
  hint.replaceAll(COMMAND, (called, at: number) => {
    const [command = ''] = hint.slice(at).split(' && ')
    const isTaken = (name: string): boolean =>
      (ALIASES[called] ?? called) === program || (INSTANCE.includes(name) && !WITHOUT_INSTANCE.includes(called))
    const missing = options.filter(([name]) => isTaken(name) && !command.includes(` --${name} `))
    return [called, ...missing.map(([name, value]) => shellWords([`--${name}`, value]))].join(' ')
  })
