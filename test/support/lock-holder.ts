// Started by tests of the data directory lock. Each line of its input takes or releases the lock.
import { createInterface } from 'node:readline'

import { errorText } from '../../src/base/errors.ts'
import { DataDirLock } from '../../src/supervision/lock.ts'
import { pathsIn } from '../../src/clients/paths.ts'

let lock: DataDirLock | null = null
for await (const line of createInterface({ input: process.stdin })) {
  if (line === 'stop') await lock?.stop()
  else {
    lock = new DataDirLock(pathsIn(process.argv[2]!))
    try {
      await lock.start()
      console.log('held')
    } catch (error) {
      console.log(errorText(error))
    }
  }
}
