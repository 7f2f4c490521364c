package create

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"
	"k8s.io/utils/ptr"
)

// manual is the annotation on jobs that a user created by hand from a schedule.
const manual = "cronjob.kubernetes.io/instantiate"

// job describes a kind of object that schedules create.
type job struct {
	schema.GroupKind
	use     string
	aliases []string
	// image is true if an object can be created from an image alone.
	image bool
	// templates maps each kind of schedule to the path of its template for this kind.
	templates map[schema.GroupKind][]string
}

var (
	cronJob         = schema.GroupKind{Group: "batch", Kind: "CronJob"}
	advancedCronJob = schema.GroupKind{Group: group, Kind: "AdvancedCronJob"}
)

var jobs = []job{
	{
		GroupKind: schema.GroupKind{Group: "batch", Kind: "Job"},
		use:       "job",
		image:     true,
		templates: map[schema.GroupKind][]string{
			cronJob:         {"spec", "jobTemplate"},
			advancedCronJob: {"spec", "template", "jobTemplate"},
		},
	},
	{
		GroupKind: schema.GroupKind{Group: group, Kind: "BroadcastJob"},
		use:       "broadcastJob",
		aliases:   []string{"broadcastjob", "bcj"},
		image:     true,
		templates: map[schema.GroupKind][]string{
			advancedCronJob: {"spec", "template", "broadcastJobTemplate"},
		},
	},
	{
		GroupKind: schema.GroupKind{Group: group, Kind: "ImageListPullJob"},
		use:       "imagelistpulljob",
		aliases:   []string{"imageListPullJob"},
		templates: map[schema.GroupKind][]string{
			advancedCronJob: {"spec", "template", "imageListPullJobTemplate"},
		},
	},
}

func newJob(f cmdutil.Factory, streams genericiooptions.IOStreams, kind job) *cobra.Command {
	var image, from string
	sources := "acj/NAME"
	if _, ok := kind.templates[cronJob]; ok {
		sources = "(cronjob|acj)/NAME"
	}

	use, long := fmt.Sprintf("%s NAME --from=%s", kind.use, sources),
		fmt.Sprintf("Create a %s from the template of a schedule.", kind.Kind)
	example := fmt.Sprintf(
		"# Run now what the schedule nightly would\nkubectl afloat create %s now --from=acj/nightly", kind.use)
	if kind.image {
		use = fmt.Sprintf("%s NAME (--image=IMAGE | --from=%s) [-- COMMAND [args...]]", kind.use, sources)
		long = fmt.Sprintf(
			"Create a %s that runs a command in an image, or from the template of a schedule.", kind.Kind)
		example += fmt.Sprintf(
			"\n\n# Run a command\nkubectl afloat create %s clean --image=busybox -- rm -rf /tmp/cache", kind.use)
	}

	cmd := &cobra.Command{
		Use:                   use,
		Aliases:               kind.aliases,
		DisableFlagsInUseLine: true,
		Short:                 fmt.Sprintf("Create a %s with the specified name", kind.Kind),
		Long:                  templates.LongDesc(long),
		Example:               templates.Examples(example),
	}

	c := newCreation(f, streams, cmd)
	if kind.image {
		cmd.Flags().StringVar(&image, "image", "", "The image to run.")
	}
	cmd.Flags().StringVar(&from, "from", "", "The schedule whose template is used, as "+sources+".")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := name(cmd, args)
		if err != nil {
			return err
		}

		command := args[1:]
		switch {
		case kind.image && (image == "") == (from == ""):
			return cmdutil.UsageErrorf(cmd, "exactly one of --image and --from must be specified")
		case !kind.image && from == "":
			return cmdutil.UsageErrorf(cmd, "--from must be specified")
		case from != "" && len(command) > 0:
			return cmdutil.UsageErrorf(cmd, "a command can be given with --image only")
		}

		object, err := c.object(kind.GroupKind, name)
		if err != nil {
			return err
		}

		if from != "" {
			err = c.instantiate(kind, from, object)
		} else {
			run(object, image, command)
		}
		if err != nil {
			return err
		}

		return c.finish(cmd, object)
	}

	return cmd
}

// run sets the spec of the object so that it runs a command in an image.
func run(object *unstructured.Unstructured, image string, command []string) {
	container := map[string]any{"name": object.GetName(), "image": image}
	if len(command) > 0 {
		var words []any
		for _, word := range command {
			words = append(words, word)
		}
		container["command"] = words
	}
	object.Object["spec"] = map[string]any{
		"template": map[string]any{
			"spec": map[string]any{
				"containers":    []any{container},
				"restartPolicy": "Never",
			},
		},
	}
}

// instantiate fills in the object as the schedule would, with the schedule as its owner.
func (c *creation) instantiate(kind job, from string, object *unstructured.Unstructured) error {
	schedule, err := c.one(from)
	if err != nil {
		return err
	}

	path, ok := kind.templates[schedule.GroupVersionKind().GroupKind()]
	if !ok {
		return fmt.Errorf("%s is a %s, of which no %s can be made", from, schedule.GetKind(), kind.Kind)
	}
	template, ok, err := unstructured.NestedMap(schedule.Object, path...)
	if err != nil || !ok {
		return fmt.Errorf("%s has no %s: it does not make %ss", from, strings.Join(path, "."), kind.Kind)
	}

	of := &unstructured.Unstructured{Object: template}
	annotations := of.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[manual] = "manual"
	object.SetAnnotations(annotations)
	object.SetLabels(of.GetLabels())
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: schedule.GetAPIVersion(),
		Kind:       schedule.GetKind(),
		Name:       schedule.GetName(),
		UID:        schedule.GetUID(),
		Controller: ptr.To(true),
	}})

	object.Object["spec"] = template["spec"]
	return nil
}
