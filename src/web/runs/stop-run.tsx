import { useState } from 'preact/hooks'
import type { PageRun } from '../../protocol/page-lists.ts'
import { call } from '../api.ts'
import { Confirm } from '../dialog.tsx'
import { Command } from '../parts.tsx'
import { Name } from '../visible.tsx'
import { isOpen } from './live-runs.ts'

const Consequences = ({ run }: { readonly run: PageRun }) => (
  <>
    <p>
      <Command argv={run.argv} isCut={run.argv_cut} />
    </p>
    <ul class="what-changes">
      <li>
        {run.result === 'waiting' ? (
          'It waits for an approval. It will not start.'
        ) : (
          <>
            <Name text={run.on ?? 'This machine'} /> sends SIGTERM to all its processes now, and SIGKILL 5 seconds later.
          </>
        )}
      </li>
      {run.fanout_id !== null && <li>The other hosts of its fan-out go on.</li>}
      {run.detached && <li>Its host keeps the output so far.</li>}
    </ul>
  </>
)

/** A button that ends a run which this agent requested, after a dialog. */
export const StopRun = ({ run }: { readonly run: PageRun }) => {
  const [isAsked, setAsked] = useState(false)
  const [isSent, setSent] = useState(false)
  if (run.side !== 'mine' || !isOpen(run)) return null
  const stop = async (): Promise<void> => {
    await call('stop', { key: run.key })
    setSent(true)
    setAsked(false)
  }
  return (
    <>
      <button type="button" class="danger" disabled={isSent} onClick={() => setAsked(true)}>
        {isSent ? 'Stopping …' : 'Stop'}
      </button>
      {isAsked && (
        <Confirm title="Stop this run?" action="Stop the run" cancel="Let it run" isDanger confirm={stop} close={() => setAsked(false)}>
          <Consequences run={run} />
        </Confirm>
      )}
    </>
  )
}
