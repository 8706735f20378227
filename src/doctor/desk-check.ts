import { errorText, isAppError } from '../base/errors.ts'
import { openDesk } from '../local-api/desk-human.ts'
import type { DataPaths } from '../local-api/paths.ts'
import { fail, ok, warn, type Finding } from './findings.ts'

const TOPIC = 'desk'
const NO_DESK = 'start x0xd, or x0x desk where no daemon runs: until then what runs on this host, or must be asked, is denied'

/** Whether a desk answers, whether its store is sound, and what waits. */
export const deskFindings = async (paths: DataPaths): Promise<Finding[]> => {
  const { approvalsSocket } = paths
  const desk = await openDesk(paths, 'doctor').catch((error: unknown) => (error instanceof Error ? error : new Error(String(error))))
  if (desk instanceof Error) {
    if (isAppError(desk, 'daemon_unreachable')) return [warn(TOPIC, `none answers at ${approvalsSocket}`, NO_DESK)]
    return [warn(TOPIC, `what answers at ${approvalsSocket} cannot be asked: ${errorText(desk)}`, 'look as the user of the desk')]
  }
  try {
    const { questions } = await desk.pending()
    const there = ok(
      TOPIC,
      `one answers at ${approvalsSocket}; ${questions.length} ${questions.length === 1 ? 'question waits' : 'questions wait'}`,
    )
    const store = await desk.store().then(
      () => ok('store', 'is sound'),
      (error: unknown) =>
        fail(
          'store',
          errorText(error),
          'mend exec-approvals.json, or move it away and start the desk again; until then it denies everything',
        ),
    )
    return [there, store]
  } catch (error) {
    return [fail(TOPIC, errorText(error), 'look at the log of x0xd or x0x desk')]
  } finally {
    desk.close()
  }
}
