// Package schedule computes the times of cron expressions (ACJ-021, ACJ-050 to ACJ-057). Expressions are
// parsed by robfig/cron, as in the CronJob of Kubernetes, so that the two agree. The library also finds the
// next time, but only for days without changes of the clock: around those it skips days, or runs on days that
// are not meant. Therefore this package treats a time zone as a series of spans of constant offset, in which
// the library is correct.
//
// All answers take a bounded effort, for any period of time and any expression.
package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // for systems that have no database of time zones

	"github.com/robfig/cron/v3"
)

const (
	// MaxLength is the maximum length of an expression. All minutes, hours, days and months listed one by one
	// are shorter.
	MaxLength = 1024
	// horizon is how many years ahead a time is searched for. The rarest time that exists is a 29 February
	// around 2100, which comes after 8 years.
	horizon = 10
	// shortest is the shortest interval of @every; shorter ones are extended to it.
	shortest = time.Second
)

// Schedule defines when something is to happen. The zero value means never.
type Schedule struct {
	// every is the interval of "@every"; 0 if the times are those of the expression.
	every time.Duration
	times *cron.SpecSchedule
	zone  *time.Location
	// hourly is true if the expression contains each hour, so that hours which the clock repeats are no
	// repetition.
	hourly bool
}

// Parse parses an expression. Its times are in UTC until [Schedule.In] sets a zone. prefix is the zone in
// front of the expression, as in "CRON_TZ=Europe/Paris 0 3 * * *"; empty if there is none.
func Parse(text string) (s Schedule, prefix string, err error) {
	defer func() {
		if cause := recover(); cause != nil { // the library panicked
			s, err = Schedule{}, fmt.Errorf("it cannot be read: %v", cause)
		}
	}()
	if len(text) > MaxLength {
		return Schedule{}, "", fmt.Errorf("it has %d characters, at most %d are allowed",
			len(text), MaxLength)
	}

	for _, key := range []string{"TZ=", "CRON_TZ="} {
		if rest, ok := strings.CutPrefix(text, key); ok {
			prefix, text, ok = strings.Cut(rest, " ")
			if !ok || prefix == "" {
				return Schedule{}, "", fmt.Errorf(
					"after %s there must be a time zone, a space, and a schedule", key)
			}
			text = strings.TrimSpace(text)
			break
		}
	}

	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		return Schedule{}, "", errors.New("there are two time zones before it")
	}

	if every, ok := strings.CutPrefix(text, "@every "); ok {
		interval, err := time.ParseDuration(every)
		switch {
		case err != nil:
			return Schedule{}, "", fmt.Errorf("after @every there must be a duration, such as 1h30m: %w", err)
		case interval <= 0:
			return Schedule{}, "", fmt.Errorf("the interval %s is not greater than 0", every)
		}
		return Schedule{every: max(interval.Truncate(time.Second), shortest), zone: time.UTC}, prefix, nil
	}

	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return Schedule{}, "", err
	}

	times, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return Schedule{}, "", fmt.Errorf("%q is no schedule", text)
	}

	for _, field := range []uint64{times.Minute, times.Hour, times.Dom, times.Month, times.Dow} {
		if field == 0 { // such as ","
			return Schedule{}, "", errors.New("a field names no value")
		}
	}

	times.Location = time.UTC
	const hours = 1<<24 - 1
	return Schedule{times: times, zone: time.UTC, hourly: times.Hour&hours == hours}, prefix, nil
}

// Zone returns a time zone of the IANA database. It rejects "Local" in any case, because its meaning would
// depend on the manager.
func Zone(name string) (*time.Location, error) {
	if name == "" || strings.EqualFold(name, "local") {
		return nil, fmt.Errorf("%q is no name of the IANA time zone database, such as Europe/Paris", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%q is not in the IANA time zone database: %w", name, err)
	}
	return zone, nil
}

// In returns the schedule with its times in a zone.
func (s Schedule) In(zone *time.Location) Schedule {
	s.zone = zone
	return s
}

// Next returns the first time after the given one, false if there is none. Times of "@every" count from the
// anchor, which is not one of them.
func (s Schedule) Next(anchor, after time.Time) (time.Time, bool) {
	if s.every > 0 {
		n := max(after.Sub(anchor), 0) / s.every
		return anchor.Add((n + 1) * s.every).In(s.zone), true
	}
	if s.times == nil {
		return time.Time{}, false
	}

	at := after.Truncate(time.Second).Add(time.Second).In(s.zone)
	for limit := after.AddDate(horizon, 0, 0); at.Before(limit); {
		_, offset := at.Zone()
		begin, end := at.ZoneBounds()
		from := shift(at, offset)
		// Times that the clock shows for the second time are over.
		if !s.hourly && !begin.IsZero() {
			_, before := begin.Add(-time.Second).Zone()
			if over := shift(begin, before); from.Before(over) {
				from = over
			}
		}

		next := s.shown(from.Add(-time.Second))
		if next.IsZero() {
			break
		}
		if found := next.Add(-time.Duration(offset) * time.Second).In(s.zone); end.IsZero() ||
			found.Before(end) {
			return found, true
		}
		at = end.In(s.zone)
	}

	return time.Time{}, false
}

// shift returns what a clock with that offset from UTC shows, as if it were UTC.
func shift(at time.Time, offset int) time.Time {
	return at.UTC().Add(time.Duration(offset) * time.Second)
}

// shown returns the next time on a clock that never changes; zero if there is none.
func (s Schedule) shown(after time.Time) time.Time {
	for range 1 + horizon/5 { // the library searches five years ahead
		if next := s.times.Next(after); !next.IsZero() {
			return next
		}
		after = after.AddDate(5, 0, 0)
	}
	return time.Time{}
}

// Latest returns the last time that is after the time after and not later than until.
func (s Schedule) Latest(anchor, after, until time.Time) (time.Time, bool) {
	latest, ok := s.Next(anchor, after)
	if !ok || latest.After(until) {
		return time.Time{}, false
	}
	if s.every > 0 {
		return anchor.Add(until.Sub(anchor) / s.every * s.every).In(s.zone), true
	}

	for late := until; late.Sub(latest) > time.Second; {
		middle := latest.Add(late.Sub(latest) / 2)
		if next, ok := s.Next(anchor, middle); ok && !next.After(until) {
			latest = next
		} else {
			late = middle
		}
	}

	return latest, true
}

// Count returns how many times are after the time after and not later than until, at most most.
func (s Schedule) Count(anchor, after, until time.Time, most int) (n int) {
	for ; n < most; n++ {
		next, ok := s.Next(anchor, after)
		if !ok || next.After(until) {
			break
		}
		after = next
	}
	return n
}
