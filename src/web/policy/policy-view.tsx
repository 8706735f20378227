import { useState } from 'preact/hooks'
import type { PageExplanation, PagePolicy } from '../../protocol/page.ts'
import { call } from '../api.ts'
import { ModesView } from './modes-view.tsx'
import { usePolled } from '../use-polled.ts'
import { More, Name, Output, Token } from '../visible.tsx'

const OUTCOMES: Readonly<Record<PageExplanation['outcome'], string>> = {
  allowed: 'It would run.',
  asked: 'It would wait for an approval.',
  denied: 'It would be denied.',
}

/** Reads a command with one word per line, so that no quoting is guessed. */
const argvOf = (text: string): string[] => text.split('\n').filter((line, at, lines) => line !== '' || at < lines.length - 1)

const Explain = ({ agent_id, machine_id }: { readonly agent_id: string; readonly machine_id: string }) => {
  const [words, setWords] = useState('')
  const [said, setSaid] = useState<PageExplanation | string | null>(null)
  const ask = async (): Promise<void> => {
    try {
      setSaid(await call<PageExplanation>('explain', { agent_id, machine_id, argv: argvOf(words) }))
    } catch (error) {
      setSaid(error instanceof Error ? error.message : String(error))
    }
  }
  const id = `words-${agent_id.slice(0, 12)}-${machine_id.slice(0, 12)}`
  return (
    <form
      class="explain"
      onSubmit={(event) => {
        event.preventDefault()
        void ask()
      }}
    >
      <label for={id}>Would it be allowed? One word of the command on each line</label>
      <textarea id={id} rows={3} spellcheck={false} value={words} onInput={(event) => setWords(event.currentTarget.value)} />
      <button type="submit">Explain</button>
      <div role="status">
        {typeof said === 'string' && (
          <p class="warning">
            <Name text={said} />
          </p>
        )}
        {said !== null && typeof said === 'object' && (
          <>
            <p class={`outcome ${said.outcome}`}>{OUTCOMES[said.outcome]}</p>
            <Output text={said.text} label="Reason" />
          </>
        )}
      </div>
    </form>
  )
}

/** The permissions of each agent of the mesh on this host, by the ACL in force. */
export const PolicyView = () => {
  const { value, problem } = usePolled<PagePolicy>('policy', {}, 0)
  const said = problem ?? value?.problem ?? null
  const source = value?.source ?? null
  return (
    <>
      <ModesView />
      <h2>Agents of the mesh</h2>
      {source !== null && (
        <p>
          <Token text={source} />
        </p>
      )}
      {said !== null && (
        <p class="warning">
          <Name text={said} />
        </p>
      )}
      {value?.pairs.length === 0 && said === null && <p class="quiet">No agent may run commands on this machine.</p>}
      {value?.pairs.map(({ agent_id, machine_id, name, commands }) => (
        <details key={`${agent_id} ${machine_id}`} class="card small" open={value.pairs.length === 1}>
          <summary>
            {name === null ? 'agent' : <Name text={name} />} <span class="mono">{agent_id.slice(0, 16)}…</span>: {commands.length}{' '}
            {commands.length === 1 ? 'command' : 'commands'}
          </summary>
          <p class="mono quiet">
            agent {agent_id}
            <br />
            machine {machine_id}
          </p>
          <ul class="rules">
            <More
              all={commands}
              of="commands"
              show={(command, at) => (
                <li key={at}>
                  {command.argv.map((token, index) => (
                    <span key={index}>
                      <Token text={token} />{' '}
                    </span>
                  ))}
                  <span class="quiet">
                    <Name text={command.note} />
                  </span>
                </li>
              )}
            />
          </ul>
          <Explain agent_id={agent_id} machine_id={machine_id} />
        </details>
      ))}
    </>
  )
}
