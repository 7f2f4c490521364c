// Package seconds turns the seconds of API fields into durations. Users write numbers such as 9999999999 for
// never. A duration cannot hold them: the product overflows and becomes a time in the past.
package seconds

import "time"

const most = 100 * 365 * 24 * 60 * 60

// Duration is n seconds, at most a hundred years either way.
func Duration(n int64) time.Duration {
	return time.Duration(max(min(n, most), -most)) * time.Second
}
