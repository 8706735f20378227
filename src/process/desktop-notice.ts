import { spawn } from 'node:child_process'
import { isAbsolute } from 'node:path'
import type { Environment } from '../base/runtime.ts'
import { findExecutable } from '../policy/executable.ts'

/**
 * Shows a notification by `notify-send` of libnotify, found in the user's PATH. Returns false if the program is missing. The text is shown literally,
 * without markup.
 */
export const desktopNotice = (title: string, text: string, env: Environment): boolean => {
  if ((env['DISPLAY'] ?? env['WAYLAND_DISPLAY'] ?? env['DBUS_SESSION_BUS_ADDRESS']) === undefined) return false
  const tool = findExecutable('notify-send', (env['PATH'] ?? '').split(':').filter(isAbsolute).join(':'))
  if (tool.kind !== 'found') return false
  const plain = text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
  const child = spawn(tool.executable.path, ['--app-name=x0x', '--urgency=critical', '--', title, plain], {
    stdio: 'ignore',
    env: { ...env },
  })
  // An approval client shows the request in any case.
  child.on('error', () => undefined).unref()
  return true
}
