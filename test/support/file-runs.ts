import { systemClock } from '../../src/base/clock.ts'
import { TimeSlicer } from '../../src/base/time-slices.ts'
import { Uploads } from '../../src/fs/uploads.ts'

/** What a run needs for file commands, for tests of programs. */
export const noFileRuns = () => ({ uploads: new Uploads({ clock: systemClock }), sharing: new TimeSlicer({ clock: systemClock }) })
