/** Room for one more, where `own` of `all` are one source's: at most half of what is left besides, so that no few of them take all. */
export const hasShare = (own: number, all: number, max: number): boolean => all < max && own <= (max - all) / 2
