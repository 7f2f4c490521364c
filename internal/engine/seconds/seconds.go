// Package seconds converts the seconds of API fields to durations. Users write numbers such as 9999999999 for
// never. A duration cannot represent them: the product overflows and becomes a time in the past.
package seconds

import "time"

const most = 100 * 365 * 24 * 60 * 60

// Duration returns n seconds as a duration, bounded to a hundred years in either direction.
func Duration(n int64) time.Duration {
	return time.Duration(max(min(n, most), -most)) * time.Second
}
