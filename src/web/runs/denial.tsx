import type { PageExplanation } from '../../protocol/page.ts'
import type { PageRun, PageRunDetail } from '../../protocol/page-lists.ts'
import { usePolled } from '../use-polled.ts'
import { Name, Output } from '../visible.tsx'

interface DenialProps {
  readonly run: PageRun
  readonly denial: PageRunDetail['denial']
  /** Details for the operator of this machine. */
  readonly detail: string | null
}

/** What the ACL of this machine says about the command now. */
const Explanation = ({ run }: { readonly run: PageRun }) => {
  const { agent_id, machine_id, argv } = run
  const { value } = usePolled<PageExplanation>('explain', { agent_id, machine_id, argv }, 0)
  return value === null ? null : (
    <details open>
      <summary>What the ACL says about it now</summary>
      <Output text={value.text} label="Explanation of the ACL" />
    </details>
  )
}

/** Why a run was denied, and what an operator can do. */
export const Denial = ({ run, denial, detail }: DenialProps) => (
  <section class="denial" aria-label="Why it was denied">
    {denial !== null && (
      <p>
        <strong>
          <Name text={denial.cause} />
        </strong>
      </p>
    )}
    {detail !== null && (
      <p>
        <Name text={detail} />
      </p>
    )}
    {denial !== null && denial.next.length > 0 && (
      <ul>
        {denial.next.map((line) => (
          <li key={line}>
            <Name text={line} />
          </li>
        ))}
      </ul>
    )}
    {run.side === 'incoming' && run.agent_id !== null && run.machine_id !== null && !run.argv_cut && <Explanation run={run} />}
  </section>
)
