import assert from 'node:assert/strict'

import { systemClock } from '../../src/base/clock.ts'
import { TimeSlicer } from '../../src/base/time-slices.ts'
import { Uploads } from '../../src/fs/uploads.ts'

/** No command of these tests is recorded. */
const noRecordings = { begin: async () => assert.fail('nothing is recorded'), ended: () => undefined }

/** The parts of a run that serve file commands and recordings, for tests of other programs. */
export const noFileRuns = () => ({
  uploads: new Uploads({ clock: systemClock }),
  recordings: noRecordings,
  sharing: new TimeSlicer({ clock: systemClock }),
})
