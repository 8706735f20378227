import type { ComponentChildren } from 'preact'
import type { PageRunDetail, PageRunFacts, PageRun } from '../../protocol/page-lists.ts'
import { bytesText, durationText } from '../format.ts'
import { Fact } from '../parts.tsx'
import { Name, Token } from '../visible.tsx'

const SIDES: Readonly<Record<PageRun['side'], string>> = {
  mine: 'this agent',
  incoming: 'another agent, whose keys were verified',
  local: 'a local program, by the label that it gave itself',
}

/** A fact that is left out if the logs do not have it. */
const Known = ({ name, value, children }: { readonly name: string; readonly value: unknown; readonly children: ComponentChildren }) =>
  value === null || value === false ? null : <Fact name={name}>{children}</Fact>

const limitsText = ({ timeout_ms, keep_bytes }: PageRunFacts): string | null => {
  const limits = [
    ...(timeout_ms === null ? [] : [`at most ${durationText(timeout_ms)}`]),
    ...(keep_bytes === null ? [] : [`keeps ${bytesText(keep_bytes)} of output`]),
  ]
  return limits.length === 0 ? null : limits.join(', ')
}

const sizesText = ({ stdin_bytes, stdout_bytes, stderr_bytes }: PageRunFacts): string | null => {
  const sizes = [
    ...(stdin_bytes === null || stdin_bytes === 0 ? [] : [`${bytesText(stdin_bytes)} in`]),
    ...(stdout_bytes === null ? [] : [`${bytesText(stdout_bytes)} to stdout`]),
    ...(stderr_bytes === null ? [] : [`${bytesText(stderr_bytes)} to stderr`]),
  ]
  return sizes.length === 0 ? null : sizes.join(', ')
}

const Requester = ({ run, facts }: PageRunDetail) => (
  <>
    <Fact name="Asked by">
      <Name text={run.who} /> <span class="quiet">({SIDES[run.side]})</span>
      {run.side === 'incoming' && (
        <>
          <br />
          <span class="mono quiet">
            agent <Name text={run.agent_id ?? ''} /> machine <Name text={run.machine_id ?? ''} />
          </span>
        </>
      )}
    </Fact>
    <Known name="Through" value={facts.door}>
      <Name text={`${facts.door}${facts.session === null ? '' : `, session ${facts.session}`}`} />
    </Known>
    <Known name="ACL rule" value={facts.matched_acl}>
      <Name text={facts.matched_acl ?? ''} />
    </Known>
    <Known name="Approved by" value={facts.approved_by}>
      <Name text={facts.approved_by ?? ''} />
    </Known>
  </>
)

const Process = ({ facts }: Pick<PageRunDetail, 'facts'>) => (
  <>
    <Known name="Runs" value={facts.executable}>
      <Token text={facts.executable ?? ''} />
    </Known>
    <Known name="In" value={facts.cwd}>
      <Token text={facts.cwd ?? ''} />
    </Known>
    <Known name="Variables" value={facts.env.length > 0}>
      <Name text={facts.env.join(' ')} />
    </Known>
    <Known name="User" value={facts.account}>
      <Name text={facts.account ?? ''} />
    </Known>
    <Known name="Process" value={facts.pid}>
      {facts.pid} <Name text={facts.containment === null ? '' : `in a ${facts.containment.replaceAll('_', ' ')}`} />
    </Known>
    <Known name="Terminal" value={facts.terminal}>
      yes
    </Known>
  </>
)

/** Facts of a run, as far as the logs have them. */
export const RunFacts = (detail: { readonly detail: PageRunDetail }) => {
  const { run, facts } = detail.detail
  const [limits, sizes] = [limitsText(facts), sizesText(facts)]
  return (
    <>
      <Requester {...detail.detail} />
      <Known name="Limits" value={limits}>
        {limits}
      </Known>
      <Known name="Bytes" value={sizes}>
        {sizes}
        {facts.truncated && <strong> (output was cut at a limit)</strong>}
      </Known>
      <Known name="Warnings" value={facts.warnings.length > 0}>
        <strong>
          <Name text={facts.warnings.map((kind) => kind.replaceAll('_', ' ')).join(', ')} />
        </strong>
      </Known>
      <Process facts={facts} />
      <Known name="Detached" value={run.detached}>
        yes: it continues without its requester
      </Known>
      <Fact name="Request">
        <span class="mono">
          <Name text={run.request_id} />
        </span>
      </Fact>
    </>
  )
}
