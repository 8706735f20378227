import { readUpTo } from '../../../base/buffers.ts'
import { AppError } from '../../../base/errors.ts'
import { shown, shownLine, visibleJson } from '../../../base/visible-text.ts'
import { untilEnded, write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import type { ContactsAnswer } from '../../../protocol/api-answers.ts'
import { MAX_DIRECT_PAYLOAD } from '../../../protocol/limits/wire.ts'
import { linesOf } from '../../../protocol/lines.ts'
import type { CliContext } from '../context.ts'
import { printAnswer, printLine } from '../print.ts'

/** The next step after a message was not delivered. */
const NEXT: Readonly<Record<string, string>> = {
  no_listener: 'no program listens: run x0x direct listen on its machine, then send it again',
  rejected: 'the agent does not accept messages of this one. On its machine: x0x contacts trust NAME known (or trusted)',
}

/** `x0x direct send AGENT [TEXT]`: one message, answered when it has arrived. */
export const runDirectSend = async (context: CliContext, line: CommandLine): Promise<number> => {
  const [agent = '', text = '-'] = line.words
  const given = text === '-' ? await readUpTo(context.stdin as AsyncIterable<Buffer>, MAX_DIRECT_PAYLOAD) : Buffer.from(text)
  if (given === null || given.length > MAX_DIRECT_PAYLOAD)
    throw new AppError('too_large', `a message has at most ${MAX_DIRECT_PAYLOAD} bytes (48 KiB)`)
  const body = { agent, content_type: line.value('content-type') ?? '', payload_b64: given.toString('base64') }
  const answer = await context.api.json<{ outcome?: string }>({ method: 'POST', path: '/direct/send', body })
  await printAnswer(context, answer, async () => {
    if (!context.quiet) await printLine(context, shownLine(answer.outcome ?? 'sent'))
    const next = NEXT[answer.outcome ?? '']
    if (next !== undefined) await write(context.stderr, `x0x: ${next}\n`)
  })
  return answer.outcome === undefined || answer.outcome === 'delivered' ? 0 : 1
}

interface DirectEvent {
  readonly type: string
  readonly from_agent?: string
  readonly content_type?: string
  readonly payload_b64?: string
}

type Names = ReadonlyMap<string, string>

const namesOfContacts = async (context: CliContext): Promise<Names> => {
  const { contacts } = await context.api.json<ContactsAnswer>({ method: 'GET', path: '/contacts' })
  return new Map(contacts.map(({ name, agent_id }) => [agent_id, name]))
}

const render = (event: DirectEvent, names: Names): string => {
  if (event.payload_b64 === undefined) return shownLine(JSON.stringify(event))
  const agent = event.from_agent ?? ''
  const name = names.get(agent)
  const from = name === undefined ? agent.slice(0, 12) : `${agent.slice(0, 12)} (${name})`
  const payload = Buffer.from(event.payload_b64, 'base64')
  const text = event.content_type?.startsWith('text/')
    ? shown(payload.toString('utf8'))
    : `(${payload.length} bytes of ${shownLine(event.content_type ?? 'data')})`
  return `${shownLine(from)}  ${text}`
}

/** An event with a message in base64 and its fields. An error may have more data. */
const MAX_EVENT_LINE = 16 * 1024 * 1024
const tooLong = (): Error => new RangeError(`a line is longer than ${MAX_EVENT_LINE} bytes`)

/** `x0x direct listen`: messages as they come, under the contact names of the start, until it is ended. */
export const runDirectListen = async (context: CliContext): Promise<number> => {
  return untilEnded(context, async (signal) => {
    const headers = { accept: 'text/event-stream' }
    const events = await context.api.open({ method: 'GET', path: '/direct/events', headers, signal })
    const names = context.json ? new Map<string, string>() : await namesOfContacts(context)
    for await (const bytes of linesOf(events, MAX_EVENT_LINE, tooLong)) {
      const line = bytes.toString('utf8')
      if (!line.startsWith('data:')) continue
      const data = line.slice('data:'.length).trim()
      if (!(await write(context.stdout, `${context.json ? visibleJson(data) : render(JSON.parse(data) as DirectEvent, names)}\n`))) break
    }
  })
}
