import type { AgentSigner } from '../../src/identity/signing.ts'
import { sha256 } from '../../src/identity/hash.ts'
import { execFrame } from '../../src/protocol/wire/exec.ts'
import {
  EXEC_TERMINAL_INPUT_DOMAIN,
  EXEC_TERMINAL_REQUEST_DOMAIN,
  type ExecTerminalInput,
  execTerminalInput,
  execTerminalRequest,
} from '../../src/protocol/wire/terminal.ts'
import type { FakeLink, ProbeRun } from './fake-network.ts'

/** The content of an input frame, with its signer and signature domain. */
export interface ProbeInput extends Partial<ExecTerminalInput> {
  /** Number of the frame. Default: the number in the input. */
  readonly frameSeq?: number
  readonly signer?: Pick<AgentSigner, 'sign'>
  readonly domain?: string
}

/** A run on a terminal as its requester sees it. */
export class ProbeTerminal {
  readonly run: ProbeRun
  readonly requestSha256: Uint8Array
  readonly #link: FakeLink
  #seq = 0

  private constructor(link: FakeLink, run: ProbeRun, requestSha256: Uint8Array) {
    this.#link = link
    this.run = run
    this.requestSha256 = requestSha256
  }

  static async open(link: FakeLink, argv: readonly string[], size = { columns: 80, rows: 24 }): Promise<ProbeTerminal> {
    const nonce = await link.nonce()
    const { stdin: _stdin, cwd: _cwd, ...fields } = link.request(nonce, argv)
    const body = execTerminalRequest.encode({ ...fields, ...size, term: 'xterm' })
    const signature = await link.peer.signer.sign(EXEC_TERMINAL_REQUEST_DOMAIN, body)
    const request = { ...fields, stdin: null, cwd: null }
    const run = link.open(nonce, execFrame.encode({ type: 'terminal_request', body, signature }), request)
    return new ProbeTerminal(link, run, sha256(body))
  }

  /** The next input frame. `input` replaces its fields. */
  async frame(input: ProbeInput): Promise<Uint8Array> {
    const { frameSeq, signer = this.#link.peer.signer, domain = EXEC_TERMINAL_INPUT_DOMAIN, ...content } = input
    const seq = content.seq ?? this.#seq
    const body = execTerminalInput.encode({
      request_sha256: this.requestSha256,
      data: new Uint8Array(0),
      size: null,
      ...content,
      seq,
    })
    const signature = await signer.sign(domain, body)
    return execFrame.encode({ type: 'terminal_input', request_id: this.run.id, seq: frameSeq ?? seq, body, signature })
  }

  async type(text: string | Uint8Array, more: ProbeInput = {}): Promise<void> {
    this.run.sendBytes(await this.frame({ data: typeof text === 'string' ? Buffer.from(text) : text, ...more }))
    this.#seq += 1
  }

  async resize(columns: number, rows: number): Promise<void> {
    this.run.sendBytes(await this.frame({ size: { columns, rows } }))
    this.#seq += 1
  }

  /** Waits until the output contains this text. */
  async shows(text: string): Promise<void> {
    await this.run.frame('stdout', () => this.run.output().includes(text))
  }

  /** The highest frame number that the target has acknowledged. */
  get acked(): number {
    return Math.max(0, ...this.run.frames.map((frame) => (frame.type === 'ack' ? frame.stdin : 0)))
  }
}
