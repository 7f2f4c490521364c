// Package migrate implements the command that moves workloads between Kubernetes' own kinds and those of the
// project, without downtime (OPS-167): replicas between Deployments and CloneSets, step by step, and whole
// StatefulSets and DaemonSets with their pods.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/internal/plugin/change"
)

const (
	ownGroup    = "apps.kruise.io"
	nativeGroup = "apps"
)

// kinds maps each name that users may type to the kind that can be migrated.
var kinds = map[string]string{
	"cloneset": "CloneSet", "clonesets": "CloneSet", "clone": "CloneSet",
	"deployment": "Deployment", "deployments": "Deployment", "deploy": "Deployment",
	"statefulset": "StatefulSet", "statefulsets": "StatefulSet", "sts": "StatefulSet", "asts": "StatefulSet",
	"daemonset": "DaemonSet", "daemonsets": "DaemonSet", "ds": "DaemonSet", "ads": "DaemonSet",
}

// groups maps the kinds between which replicas are moved to their API groups.
var groups = map[string]string{"CloneSet": ownGroup, "Deployment": nativeGroup}

// command is the command with its flags.
type command struct {
	cmdutil.Factory
	genericiooptions.IOStreams
	flags                              *change.Flags
	from, to, source, target, manifest string
	create, copy                       bool
	replicas, surge, timeout           int64

	// every is the interval at which objects are read; id makes the records of moves unique.
	every time.Duration
	id    func() string

	namespace string
	options   change.Options
	printer   printers.ResourcePrinter
	// objects is where objects are printed. With -o, all other output goes to ErrOut.
	objects io.Writer
}

// New returns the migrate command.
func New(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(f, streams, time.Second, func() string { return fmt.Sprint(time.Now().UnixNano()) })
}

func newCommand(f cmdutil.Factory, streams genericiooptions.IOStreams, every time.Duration,
	id func() string) *cobra.Command {
	c := &command{Factory: f, IOStreams: streams, flags: change.NewFlags("created"), every: every, id: id}
	cmd := &cobra.Command{
		Use:                   "migrate KIND (--from=KIND | --from=apps | --to=apps) -n NAMESPACE --src-name=NAME [flags]",
		DisableFlagsInUseLine: true,
		Short:                 "Migrate workloads from Kubernetes' own kinds to Afloat's, or back",
		Long: templates.LongDesc(`
			Migrate a workload to another kind, without downtime.

			From a Deployment to a CloneSet, or back: with --create the new workload is created, without replicas unless --copy is given. Without
			--create replicas are moved from the old to the new one, at most --max-surge at a time, and the old one gives a replica only when
			all of the new one are available. How far it is stands in annotations: the same command goes on where it was interrupted.

			StatefulSets and DaemonSets keep their pods, names and volumes: the old object is deleted without its pods, and the new one, with the
			same name, takes them over as they are. Before that it is made sure that nothing is under way and that the server accepts the new
			object, and the manifest of the old one is kept in a file. The same command goes on where it was interrupted. Try it with
			--dry-run=server first.`),
		Example: templates.Examples(`
			# A CloneSet like a Deployment, without replicas, and then the replicas, two at a time
			kubectl afloat migrate CloneSet --from Deployment -n shop --src-name web --create
			kubectl afloat migrate CloneSet --from Deployment -n shop --src-name web --max-surge 2

			# A StatefulSet of Kubernetes becomes one of Afloat with the same pods, and the way back
			kubectl afloat migrate StatefulSet --from apps -n shop --src-name ledger
			kubectl afloat migrate StatefulSet --to apps -n shop --src-name ledger`),
		ValidArgs: []string{"CloneSet", "Deployment", "StatefulSet", "DaemonSet"},
		RunE:      c.run,
	}
	c.flags.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&c.from, "from", "",
		"What is migrated: Deployment or CloneSet; for a StatefulSet or DaemonSet of Kubernetes: apps.")
	flags.StringVar(&c.to, "to", "",
		"For a StatefulSet or DaemonSet that shall be one of Kubernetes again: apps.")
	flags.StringVar(&c.source, "src-name", "", "The name of the workload that is migrated.")
	flags.StringVar(&c.target, "dst-name", "", "The name of the new workload; that of the old one if empty.")
	flags.BoolVar(&c.create, "create", false,
		"Create the new workload, like the old one and without replicas.")
	flags.BoolVar(&c.copy, "copy", false,
		"With --create: the new workload has as many replicas as the old one.")
	flags.Int64Var(&c.replicas, "replicas", -1, "How many replicas are moved; -1 means all.")
	flags.Int64Var(&c.surge, "max-surge", 1, "How many replicas more there may be while they are moved.")
	flags.Int64Var(&c.timeout, "timeout-seconds", -1, "For how long it may take; -1 means for ever.")
	flags.StringVar(&c.manifest, "backup", "",
		"The file that keeps the manifest of a StatefulSet or DaemonSet until its pods are taken over.")

	return cmd
}

func (c *command) run(cmd *cobra.Command, args []string) (err error) {
	usage := func(format string, a ...any) error { return cmdutil.UsageErrorf(cmd, format, a...) }
	if len(args) != 1 {
		return usage("exactly one kind to migrate to is required, got %d", len(args))
	}

	kind := kinds[strings.ToLower(args[0])]
	var explicit bool
	if c.namespace, explicit, err = c.ToRawKubeConfigLoader().Namespace(); err != nil {
		return err
	}
	if c.target == "" {
		c.target = c.source
	}
	if c.options, c.printer, err = c.flags.Options(cmd); err != nil {
		return err
	}
	if c.objects = c.Out; c.flags.Print.OutputFlagSpecified() {
		c.Out = c.ErrOut
	}

	switch {
	case kind == "":
		return usage("%s cannot be migrated to; CloneSet, Deployment, StatefulSet and DaemonSet can", args[0])
	case !explicit:
		return usage("--namespace must be specified")
	case c.source == "":
		return usage("--src-name must be specified")
	case c.surge < 1:
		return usage("--max-surge must be at least 1")
	case c.replicas < -1:
		return usage("--replicas must be at least 0, or -1 for all")
	case c.copy && !c.create:
		return usage("--copy goes with --create only")
	}
	ctx := cmd.Context()
	if c.timeout >= 0 {
		late := fmt.Errorf("timed out after %d seconds", c.timeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(c.timeout)*time.Second, late)
		defer cancel()
	}

	if _, moves := groups[kind]; !moves {
		return c.takeOver(ctx, usage, kind)
	}

	from := kinds[strings.ToLower(c.from)]
	if _, ok := groups[from]; !ok || from == kind || c.to != "" {
		return usage("a %s can be migrated --from=%s", kind,
			map[string]string{"CloneSet": "Deployment", "Deployment": "CloneSet"}[kind])
	}

	source, err := c.side(groups[from], from, c.source)
	if err != nil {
		return err
	}

	target, err := c.side(groups[kind], kind, c.target)
	if err != nil {
		return err
	}
	if c.create {
		return c.createLike(ctx, source, target)
	}

	return c.move(ctx, source, target)
}

func (c *command) side(group, kind, name string) (*side, error) {
	return newSide(c.Factory, schema.GroupKind{Group: group, Kind: kind}, c.namespace, name)
}

// pause waits until it is time to look again, and returns the cause if the context ends first.
func (c *command) pause(ctx context.Context) error {
	timer := time.NewTimer(c.every)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// because adds the cause of an ended context to an error.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
