import { type AppError, ERROR_TABLE, errorText, isAppError } from '../../../base/errors.ts'
import { visibleJson } from '../../../base/visible-text.ts'
import { DENIAL_REASONS, type DenialReason } from '../../../protocol/reasons.ts'
import type { CliContext } from '../context.ts'
import { failureLines, printProblem, withAgent } from '../failure.ts'
import { EXIT_NOT_RUN, type RunFacts, denialLines } from '../outcome.ts'
import { printLine } from '../print.ts'

/** Why a file was not copied or listed: the agent denied it, x0x cannot connect, or the file itself. */
export type FailureKind = 'denied' | 'not_connected' | 'file'

export const fileDenialOf = (error: unknown): DenialReason | null => {
  const reason = isAppError(error, 'command_denied') ? error.data['denial_reason'] : null
  return DENIAL_REASONS.find((one) => one === reason) ?? null
}

export const failureKindOf = (error: unknown): FailureKind => {
  if (fileDenialOf(error) !== null) return 'denied'
  return isAppError(error) && ERROR_TABLE[error.code].exit === EXIT_NOT_RUN ? 'not_connected' : 'file'
}

/** A message that begins with its path on the agent gets the host before it, and one without a path gets the source. */
const named = (host: string, places: readonly string[], message: string): string => {
  const [source = ''] = places
  if (places.some((place) => `${host}:${message}`.startsWith(`${place}: `))) return `${host}:${message}`
  return /^[^:]*\/[^:]*: /.test(message) || message.startsWith(`${source}: `) ? message : `${source}: ${message}`
}

/** The lines about a file that was neither denied nor without a connection. `places` are as the user would type them, the source first. */
export const fileFailureLines = (host: string, places: readonly string[], error: unknown): string[] => {
  const [first = '', ...rest] = failureLines(error)
  const next = isAppError(error) && error.data['code'] === 'EISDIR' ? ['Try: x0x cp -r'] : []
  return [named(host, places, first), ...rest, ...next]
}

/** Prints failures of files on one agent, each with its lines. */
export class FileFailures {
  readonly #context: CliContext
  readonly #host: string
  #own: Promise<RunFacts['own']> | null = null

  constructor(components: { readonly context: CliContext }, init: { readonly host: string }) {
    this.#context = components.context
    this.#host = init.host
  }

  /** Prints the lines, and with `--json` an object with the `facts`. `places` are the files as the user would type them, the source first. */
  async print(places: readonly string[], error: unknown, facts: object): Promise<void> {
    if (this.#context.json) {
      const { code, data } = isAppError(error) ? error : { code: 'internal', data: {} }
      const told = { ok: false, ...facts, error: code, message: errorText(error), ...(Object.keys(data).length > 0 && { data }) }
      await printLine(this.#context, visibleJson(JSON.stringify(told)))
    }
    await printProblem(this.#context, await this.#linesOf(places, error))
  }

  async #linesOf(places: readonly string[], error: unknown): Promise<string[]> {
    const reason = fileDenialOf(error)
    if (reason !== null) {
      const { argv } = (error as AppError).data
      return denialLines(reason, { agent: this.#host, argv: Array.isArray(argv) ? argv.map(String) : [], own: await this.#ownAgent() })
    }
    if (failureKindOf(error) === 'not_connected') return failureLines(withAgent(error, this.#host))
    return fileFailureLines(this.#host, places, error)
  }

  async #ownAgent(): Promise<RunFacts['own']> {
    this.#own ??= this.#context.api.json<RunFacts['own']>({ method: 'GET', path: '/agent' }).catch(() => null)
    return this.#own
  }
}
