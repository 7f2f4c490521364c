package framework

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// SidecarTerminator is the name of the sidecar terminator, a controller without a kind.
const SidecarTerminator = "sidecarterminator"

// Flags holds the flags of individual kinds.
type Flags struct {
	DeferredResize         time.Duration
	ExcludePreparingDelete bool
	AllowPrivileged        bool
	NodeImageDelay         time.Duration
	NodeImageTTL           int
	VersionedStatus        string
	UnschedulableWindow    time.Duration
	AssignByScheduler      bool
	AssignJobsByScheduler  bool
}

// AddTo adds the flags of the kinds to the manager's flags, and returns the numbers of workers by controller.
func (f *Flags) AddTo(fs *pflag.FlagSet, kinds []Kind) (workers map[string]*int) {
	workers = map[string]*int{}
	add := func(controller string, number int) {
		workers[controller] = fs.Int(controller+"-workers", number, "objects worked on at the same time")
	}

	for i := range kinds {
		if kind := &kinds[i]; kind.Controller != "" {
			add(kind.Controller, kind.Workers)
		}
	}

	add(SidecarTerminator, 3)
	fs.BoolVar(&f.ExcludePreparingDelete, "cloneset-scaling-exclude-preparing-delete", false,
		"replace pods in PreparingDelete at once, for all CloneSets")
	fs.DurationVar(&f.DeferredResize, "deferred-resize-timeout", 5*time.Minute,
		"how long a node may defer a resize before the pod is recreated, where its policy allows; 0 is for ever")
	fs.BoolVar(&f.AllowPrivileged, "allow-privileged", true,
		"templates with privileged containers pass validation")
	fs.DurationVar(&f.NodeImageDelay, "nodeimage-creation-delay", 30*time.Second,
		"delay of a NodeImage after its node is ready")
	fs.IntVar(&f.NodeImageTTL, "default-ttlseconds-for-always-nodeimage", 300,
		"seconds until a finished image entry is dropped")
	fs.StringVar(&f.VersionedStatus, "ws-enabled-versioned-status", "deployment,replicaset",
		"kinds whose subsets are counted by version")
	fs.DurationVar(&f.UnschedulableWindow, "ws-unschedulable-window", workloadspread.UnschedulableWindow,
		"for how long a subset of a WorkloadSpread is passed over in which pods could not be scheduled")
	fs.BoolVar(&f.AssignByScheduler, "assign-pods-by-scheduler", true,
		"the scheduler binds the pods of DaemonSets to the nodes for which they are made; otherwise they are created as bound")
	fs.BoolVar(&f.AssignJobsByScheduler, "assign-bcj-pods-by-scheduler", true,
		"the scheduler binds the pods of BroadcastJobs to the nodes for which they are made; otherwise they are created as bound")
	return workers
}

// Check rejects values that controllers cannot work with.
func (f *Flags) Check() error {
	switch month := 31 * 24 * 60 * 60; {
	case f.NodeImageTTL < 0 || f.NodeImageTTL > month:
		return fmt.Errorf("--default-ttlseconds-for-always-nodeimage: %d is not between 0 and %d",
			f.NodeImageTTL, month)
	case f.UnschedulableWindow < 5*time.Second:
		return fmt.Errorf("--ws-unschedulable-window: %s is less than 5 s", f.UnschedulableWindow)
	case f.NodeImageDelay < 0:
		return fmt.Errorf("--nodeimage-creation-delay: %s is negative", f.NodeImageDelay)
	case f.DeferredResize < 0:
		return fmt.Errorf("--deferred-resize-timeout: %s is negative", f.DeferredResize)
	}
	return nil
}
