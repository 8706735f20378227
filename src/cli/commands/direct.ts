import { MAX_DIRECT_PAYLOAD } from '../../protocol/limits.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { linesOf } from '../lines.ts'
import { printJson, printLine, shownJson, write } from '../print.ts'
import { shown, shownLine } from '../terminal-text.ts'

export interface SendOptions {
  /** Null: standard input. */
  readonly text: string | null
  readonly contentType: string
}

const payloadOf = async (context: CliContext, text: string | null): Promise<Buffer> => {
  if (text !== null) return Buffer.from(text)
  const parts: Buffer[] = []
  let size = 0
  for await (const part of context.stdin as AsyncIterable<Buffer>) {
    parts.push(part)
    size += part.length
    if (size > MAX_DIRECT_PAYLOAD) break
  }
  return Buffer.concat(parts)
}

/** `x0x direct send AGENT [TEXT]`: one message, answered when the other side has it. */
export const runDirectSend = async (context: CliContext, agent: string, options: SendOptions): Promise<number> => {
  const payload = await payloadOf(context, options.text)
  if (payload.length > MAX_DIRECT_PAYLOAD) throw usageError(`a message has at most ${MAX_DIRECT_PAYLOAD} bytes`)
  const body = { agent, content_type: options.contentType, payload_b64: payload.toString('base64') }
  const answer = await context.api.json<{ outcome?: string }>({ method: 'POST', path: '/direct/send', body })
  if (context.json) await printJson(context, answer)
  else await printLine(context, shownLine(answer.outcome ?? 'sent'))
  return answer.outcome === undefined || answer.outcome === 'delivered' ? 0 : 1
}

interface DirectEvent {
  readonly type: string
  readonly from_agent?: string
  readonly agent_id?: string
  readonly content_type?: string
  readonly payload_b64?: string
}

const render = (event: DirectEvent): string => {
  if (event.payload_b64 === undefined) return shownLine(JSON.stringify(event))
  const from = (event.from_agent ?? event.agent_id ?? '').slice(0, 12)
  const payload = Buffer.from(event.payload_b64, 'base64')
  const text = event.content_type?.startsWith('text/')
    ? shown(payload.toString('utf8'))
    : `(${payload.length} bytes of ${shownLine(event.content_type ?? 'data')})`
  return `${shownLine(from)}  ${text}`
}

/** `x0x direct listen`: messages as they come, until it is ended. */
export const runDirectListen = async (context: CliContext): Promise<number> => {
  const closing = new AbortController()
  const stop = context.onSignal(() => closing.abort())
  const gone = (): void => closing.abort()
  context.stdout.on('error', gone)
  try {
    const response = await context.api.open({
      method: 'GET',
      path: '/direct/events',
      headers: { accept: 'text/event-stream' },
      signal: closing.signal,
    })
    for await (const line of linesOf(response)) {
      if (!line.startsWith('data:')) continue
      const data = line.slice('data:'.length).trim()
      if (!(await write(context.stdout, `${context.json ? shownJson(data) : render(JSON.parse(data) as DirectEvent)}\n`))) break
    }
    return 0
  } catch (error) {
    if (closing.signal.aborted) return 0
    throw error
  } finally {
    stop()
    closing.abort()
    context.stdout.off('error', gone)
  }
}
