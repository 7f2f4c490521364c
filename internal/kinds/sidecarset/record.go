package sidecarset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/afloat-project/afloat/api/pub"
)

// Records are what a pod knows of its SidecarSets, by their names (SS-180).
type Records map[string]pub.SidecarSetRecord

// ReadRecords reads an annotation of a pod: pub.SidecarSetHash or pub.SidecarSetHashWithoutImage. The form of
// old releases, hashes alone, is understood (SS-182). An absent or empty annotation is no records.
func ReadRecords(text string) (Records, error) {
	records := Records{}
	if text == "" {
		return records, nil
	}

	var entries map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		return nil, fmt.Errorf("reading the record of SidecarSets: %w", err)
	}

	for name, entry := range entries {
		var record pub.SidecarSetRecord
		if err := json.Unmarshal(entry, &record.Hash); err != nil {
			record = pub.SidecarSetRecord{}
			if err := json.Unmarshal(entry, &record); err != nil {
				return nil, fmt.Errorf("reading the record of SidecarSet %s: %w", name, err)
			}
		} else {
			record.SidecarSetName = name
		}
		records[name] = record
	}

	return records, nil
}

// String is the annotation.
func (r Records) String() string { return encode(r) }

// States are the last upgrades of a pod by SidecarSet (SS-231).
type States map[string]pub.SidecarSetState

// ReadStates reads annotation pub.SidecarSetInPlaceUpdateState.
func ReadStates(text string) (States, error) {
	states := States{}
	if text == "" {
		return states, nil
	}
	if err := json.Unmarshal([]byte(text), &states); err != nil {
		return nil, fmt.Errorf("reading the state of SidecarSets: %w", err)
	}
	if states == nil { // it says null
		states = States{}
	}
	return states, nil
}

// String is the annotation.
func (s States) String() string { return encode(s) }

// WorkingContainers maps hot-upgrade sidecars to the one of their two containers that works (SS-126).
type WorkingContainers map[string]string

// ReadWorkingContainers reads annotation pub.SidecarSetWorkingHotUpgradeContainer.
func ReadWorkingContainers(text string) (WorkingContainers, error) {
	working := WorkingContainers{}
	if text == "" {
		return working, nil
	}
	if err := json.Unmarshal([]byte(text), &working); err != nil {
		return nil, fmt.Errorf("reading the working hot-upgrade containers: %w", err)
	}
	if working == nil { // it says null
		working = WorkingContainers{}
	}
	return working, nil
}

// String is the annotation.
func (w WorkingContainers) String() string { return encode(w) }

// encode writes a map of strings and plain structs, which always can be.
func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

// ReadInjectedList reads annotation pub.SidecarSetInjectedList: the SidecarSets of a pod, sorted (SS-182).
func ReadInjectedList(text string) []string { return pub.InjectedSidecarSets(text) }

// InjectedList is the annotation with more names in it; they are there for sure, others as far as there may
// be so many.
func InjectedList(text string, more ...string) string {
	names := slices.DeleteFunc(ReadInjectedList(text),
		func(name string) bool { return slices.Contains(more, name) })
	names = append(names[:max(min(len(names), pub.MaxSidecarSets-len(more)), 0)], more...)
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ",")
}
