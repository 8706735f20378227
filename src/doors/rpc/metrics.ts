import { byLabel, exposition } from '../../base/metrics.ts'
import type { ProcessStatus } from '../../protocol/rexd/results.ts'

/** Counters of one server since its start. */
export class RpcMetrics {
  /** By method, then by code. */
  readonly #answers = new Map<string, Map<string, number>>()
  readonly #ended = new Map<string, number>()
  readonly #sessions: { readonly size: number }
  #running = 0
  #outputBytes = 0

  constructor(deps: { sessions: { readonly size: number } }) {
    this.#sessions = deps.sessions
  }

  /** `method`: a known method, or `unknown`. `code`: of the error, or `ok`. */
  answered(method: string, code: number | 'ok'): void {
    const codes = this.#answers.get(method) ?? new Map<string, number>()
    this.#answers.set(method, codes)
    count(codes, String(code))
  }

  processStarted(): void {
    this.#running += 1
  }

  processEnded({ status, bytes_stdout, bytes_stderr }: ProcessStatus): void {
    this.#running -= 1
    this.#outputBytes += bytes_stdout + bytes_stderr
    count(this.#ended, status)
  }

  /** In the text format of Prometheus. */
  text(): string {
    const answers = [...this.#answers].flatMap(([method, codes]) =>
      [...codes].map(([code, value]) => ({ labels: { method, code }, value })),
    )
    return exposition([
      { name: 'rexd_requests_total', type: 'counter', help: 'Requests answered, by method and error code.', samples: answers },
      { name: 'rexd_sessions', type: 'gauge', help: 'Open sessions.', samples: [{ value: this.#sessions.size }] },
      {
        name: 'rexd_processes_running',
        type: 'gauge',
        help: 'Running processes, including detached ones.',
        samples: [{ value: this.#running }],
      },
      {
        name: 'rexd_processes_ended_total',
        type: 'counter',
        help: 'Ended processes, by status.',
        samples: byLabel('status', Object.fromEntries(this.#ended)),
      },
      {
        name: 'rexd_output_bytes_total',
        type: 'counter',
        help: 'Output bytes of ended processes.',
        samples: [{ value: this.#outputBytes }],
      },
    ])
  }
}

const count = (counts: Map<string, number>, key: string): void => void counts.set(key, (counts.get(key) ?? 0) + 1)
