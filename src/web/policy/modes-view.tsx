import { useState } from 'preact/hooks'
import type { PageAgentModes, PageModes, PageSetModes } from '../../protocol/page.ts'
import { call } from '../api.ts'
import { usePolled } from '../use-polled.ts'
import { More, Name, Token } from '../visible.tsx'

/** Sends a change, then loads everything again. */
type Change = (name: string, body: object) => void

const TakeBack = ({ change, session }: { readonly session: string | null; readonly change: Change }) => (
  <button type="button" onClick={() => change('modes_off', { session })}>
    Take it back
  </button>
)

const Agent = ({ modes, isOnly, change }: { readonly modes: PageAgentModes; readonly isOnly: boolean; readonly change: Change }) => {
  const { agent, config, settings, session } = modes
  return (
    <article class="card small">
      <header>
        <h3>{agent === null ? isOnly ? 'All AI agents' : 'All other AI agents' : <Token text={agent} />}</h3>
        <span class="quiet">
          by <Token text={config} />
        </span>
      </header>
      {settings.length === 0 && <p class="warning">Its settings conflict, so no command runs.</p>}
      <dl class="facts">
        {settings.map(({ name, value, from }) => (
          <>
            <dt>{name.replace('_', ' ')}</dt>
            <dd>
              <strong>
                <Name text={value} />
              </strong>{' '}
              <span class="quiet">by {from}</span>
            </dd>
          </>
        ))}
      </dl>
      {session !== null && (
        <p>
          Set for its sessions: <Name text={session} /> <TakeBack session={agent} change={change} />
        </p>
      )}
    </article>
  )
}

/** Modes of a session, by its ID, or of an agent in none of the known files. */
const Other = ({ other, change }: { readonly other: PageSetModes; readonly change: Change }) => (
  <article class="card small">
    <header>
      <h3>
        <Token text={other.name} />
      </h3>
      <span class="quiet">
        <Name text={`by ${other.by}`} />
      </span>
    </header>
    <p>
      <Name text={other.modes} /> <TakeBack session={other.name} change={change} />
    </p>
  </article>
)

const Grant = ({ grant, change }: { readonly grant: PageModes['grants'][number]; readonly change: Change }) => (
  <article class="card small">
    <header>
      <h3>
        <Token text={grant.agent} />
      </h3>
      <span class="quiet">
        until {new Date(grant.expires_at_ms).toLocaleString()}
        {grant.uses_left !== null && `, ${grant.uses_left} more times`}
      </span>
      <button type="button" onClick={() => change('revoke', { grant_id: grant.id })}>
        Revoke
      </button>
    </header>
    <p class="line">
      {grant.argv.map((token, at) => (
        <span key={at}>
          <Token text={token} />{' '}
        </span>
      ))}
    </p>
    <p class="quiet">
      runs <Token text={grant.executable} /> in <Token text={grant.cwd} />, allowed by <Name text={grant.by} />{' '}
      <span class="mono">{grant.id}</span>
    </p>
  </article>
)

/** The modes of each local agent, where they come from, and its grants. */
export const ModesView = () => {
  const [changed, setChanged] = useState(0)
  const [said, setSaid] = useState<string | null>(null)
  const { value, problem } = usePolled<PageModes>('modes', {}, 0, String(changed))
  const change: Change = (name, body) =>
    void call(name, body)
      .then(() => setSaid(null))
      .catch((error: unknown) => setSaid(error instanceof Error ? error.message : String(error)))
      .finally(() => setChanged((n) => n + 1))
  return (
    <>
      <h2>AI agents of this machine</h2>
      <div role="status">
        {[said, problem, ...(value?.problems ?? [])].map(
          (text) =>
            text !== null && (
              <p key={text} class="warning">
                <Name text={text} />
              </p>
            ),
        )}
      </div>
      {value !== null && value.agents.length === 0 && (
        <p class="quiet">
          No configuration with [tools.exec] or [[agents.list]] was found. Without one, [security] decides what local clients may run. Name
          a configuration with x0x ui --config FILE.
        </p>
      )}
      <More
        all={value?.agents ?? []}
        of="agents"
        show={(modes) => <Agent key={`${modes.config} ${modes.agent}`} modes={modes} isOnly={value?.agents.length === 1} change={change} />}
      />
      {value !== null && value.others.length > 0 && (
        <>
          <h2>Set for others</h2>
          <More all={value.others} of="others" show={(other) => <Other key={other.name} other={other} change={change} />} />
        </>
      )}
      <h2>Grants</h2>
      {value?.grants.length === 0 && <p class="quiet">None.</p>}
      <More all={value?.grants ?? []} of="grants" show={(grant) => <Grant key={grant.id} grant={grant} change={change} />} />
    </>
  )
}
