import { randomBytes } from '../identity/hash.ts'

/** Set for everything that a run starts, where nothing stronger than its process group holds it. */
export const MARK_VARIABLE = 'X0X_RUN'

const hex = (): string => Buffer.from(randomBytes(8)).toString('hex')

/** What the marks of one daemon begin with. */
export const newMarkPrefix = hex

/** A mark that no other run can guess: whoever carries one is ended with its run. */
export const newMark = (prefix: string): string => `${prefix}-${hex()}`

/** The values of the variable, of which a hand-made environment may have several. */
export const marksIn = (environment: string): string[] =>
  // Whole variables: a stranger's may have such a text for its value, as QUERY_STRING has what anybody asks a web server.
  environment
    .split('\0')
    .flatMap((variable) => (variable.startsWith(`${MARK_VARIABLE}=`) ? [variable.slice(MARK_VARIABLE.length + 1)] : []))
