import type { ProcessStatus } from '../../protocol/rexd-answers.ts'

/** Content type of the text format, version 0.0.4 (prometheus.io, "Exposition formats"). */
export const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/** What one door has done since it started. Labels are few and known: no path, no argv, no name that a caller gave. */
export class RpcMetrics {
  readonly #answers = new Map<string, number>()
  readonly #ended = new Map<string, number>()
  readonly #sessions: { readonly size: number }
  #running = 0
  #outputBytes = 0

  constructor(components: { sessions: { readonly size: number } }) {
    this.#sessions = components.sessions
  }

  /** `method`: one that there is, or `unknown`. `code`: of the error, or `ok`. */
  answered(method: string, code: number | 'ok'): void {
    count(this.#answers, `method="${method}",code="${code}"`, 1)
  }

  processStarted(): void {
    this.#running += 1
  }

  processEnded({ status, bytes_stdout, bytes_stderr }: ProcessStatus): void {
    this.#running -= 1
    this.#outputBytes += bytes_stdout + bytes_stderr
    count(this.#ended, `status="${status}"`, 1)
  }

  /** The text that a collector reads. */
  text(): string {
    return [
      ...family('rexd_requests_total', 'counter', 'Requests answered, by method and error code.', this.#answers),
      ...family('rexd_sessions', 'gauge', 'Sessions that are open.', new Map([['', this.#sessions.size]])),
      ...family('rexd_processes_running', 'gauge', 'Processes that run, detached ones included.', new Map([['', this.#running]])),
      ...family('rexd_processes_ended_total', 'counter', 'Processes that have ended, by how.', this.#ended),
      ...family('rexd_output_bytes_total', 'counter', 'Bytes that ended processes wrote.', new Map([['', this.#outputBytes]])),
      '',
    ].join('\n')
  }
}

const count = (counts: Map<string, number>, labels: string, by: number): void => void counts.set(labels, (counts.get(labels) ?? 0) + by)

const family = (name: string, type: 'counter' | 'gauge', help: string, samples: ReadonlyMap<string, number>): string[] => [
  `# HELP ${name} ${help}`,
  `# TYPE ${name} ${type}`,
  ...[...samples].map(([labels, value]) => `${name}${labels === '' ? '' : `{${labels}}`} ${value}`),
]
