import { spawn } from 'node:child_process'

import type { Environment } from '../base/environment.ts'
import { findExecutable } from '../policy/executable.ts'

/** Tells the desktop of this user by `notify-send` of libnotify; false: it has none. The text is shown as it is, without markup. */
export const desktopNotice = (title: string, text: string, env: Environment): boolean => {
  const tool = findExecutable('notify-send')
  if (tool.kind !== 'found' || (env['DISPLAY'] ?? env['WAYLAND_DISPLAY'] ?? env['DBUS_SESSION_BUS_ADDRESS']) === undefined) return false
  const plain = text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
  const child = spawn(tool.executable.path, ['--app-name=x0x', '--urgency=critical', '--', title, plain], {
    stdio: 'ignore',
    env: { ...env },
  })
  // Whoever watches reads the question in any case.
  child.on('error', () => undefined).unref()
  return true
}
