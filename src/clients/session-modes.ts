import { AppError } from '../base/errors.ts'
import { changedOverride, overrideIn, overrideText, readModeCommand } from '../protocol/desk/mode-command.ts'
import { openDesk } from './desk.ts'
import type { DataPaths } from './paths.ts'

/**
 * Applies a line of the approver, `/exec …` or `/elevated …`, to a session, through the approval service. Returns the modes that are then
 * set.
 */
export const setModes = async (paths: DataPaths, session: string, line: string): Promise<string> => {
  const command = readModeCommand(line.split(' ').filter((word) => word !== ''))
  if (command.kind === 'problem') throw new AppError('bad_request', command.problem)
  const desk = await openDesk(paths, 'x0x console')
  try {
    const of = { session, agent: session }
    const before = overrideIn((await desk.modes(of))['session'])
    if (command.kind === 'change') await desk.setModes(session, changedOverride(before, command.change))
    return overrideText(overrideIn((await desk.modes(of))['session']))
  } finally {
    desk.close()
  }
}
