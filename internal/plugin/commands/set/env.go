package set

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	envutil "k8s.io/kubectl/pkg/cmd/set/env"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"

	"github.com/afloat-project/afloat/internal/plugin/change"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// env holds the options of "set env".
type env struct {
	*options
	params, keys             []string
	containers, from, prefix string
	list, resolve, overwrite bool

	set    []corev1.EnvVar
	remove []string
}

func newEnv(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	o := &env{options: newOptions(f, streams, "env updated"), containers: every, overwrite: true}
	cmd := &cobra.Command{
		Use:                   "env RESOURCE/NAME KEY_1=VAL_1 ... KEY_N=VAL_N",
		DisableFlagsInUseLine: true,
		Short:                 "Set environment variables of containers",
		Long: templates.LongDesc(`
			Set, remove or list environment variables of containers and init containers.

			KEY=VALUE sets a variable and KEY- removes it. With "-e -" variables are read from the standard input, one a line. A changed variable
			makes
			pods anew; what in a pod's metadata a variable refers to can be changed in place.
			` + resources + `.`),
		Example: templates.Examples(`
			# Set a variable in all containers of a CloneSet
			kubectl afloat set env cloneset/web STORAGE_DIR=/local

			# Remove a variable from one container of all CloneSets
			kubectl afloat set env clonesets --all -c app STORAGE_DIR-

			# Refer to all keys of a secret
			kubectl afloat set env cloneset/web --from=secret/credentials --prefix=DB_

			# List the variables, with the values that they refer to
			kubectl afloat set env cloneset/web --list --resolve

			# Set what the shell has
			env | grep RAILS_ | kubectl afloat set env -e - cloneset/web`),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}

			named, changes, ok := envutil.SplitEnvironmentFromResources(args)
			if !ok {
				return fmt.Errorf("all resources must be specified before environment changes: %s",
					strings.Join(args, " "))
			}

			if err := o.parse(changes); err != nil {
				return err
			}
			if o.list {
				return o.print(named)
			}
			return o.run(cmd.Context(), named, o.edit)
		},
	}

	o.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&o.containers, "containers", "c", o.containers,
		"The names of containers in the selected pod templates to change - may use wildcards.")
	flags.StringVar(&o.from, "from", "",
		"The name of a resource from which to inject environment variables: configmap/NAME or secret/NAME.")
	flags.StringVar(&o.prefix, "prefix", "", "Prefix to append to variable names.")
	flags.StringArrayVarP(&o.params, "env", "e", nil,
		"Specify a key-value pair for an environment variable to set into each container.")
	flags.StringSliceVar(&o.keys, "keys", nil,
		"Comma-separated list of keys to import from specified resource.")
	flags.BoolVar(&o.list, "list", false,
		"If true, display the environment and any changes in the standard format.")
	flags.BoolVar(&o.resolve, "resolve", false,
		"If true, show secret or configmap references when listing variables.")
	flags.BoolVar(&o.overwrite, "overwrite", o.overwrite,
		"If true, allow environment to be overwritten, otherwise reject updates that overwrite existing environment.")

	return cmd
}

// parse determines which variables to set and to remove.
func (o *env) parse(changes []string) (err error) {
	if o.set, o.remove, o.Stdin, err = envutil.ParseEnv(append(o.params, changes...), o.In); err != nil {
		return err
	}

	switch {
	case o.list && o.change.Formatted():
		return errors.New("--list and --output may not be specified together")
	case len(o.keys) > 0 && o.from == "":
		return errors.New("when specifying --keys, a configmap or secret must be provided with --from")
	case o.from != "":
		if err := o.refer(); err != nil {
			return err
		}
	}

	if !o.list && len(o.set)+len(o.remove) == 0 {
		return errors.New("at least one environment variable must be provided")
	}
	for i := range o.set {
		o.set[i].Name = o.prefix + o.set[i].Name
	}
	return nil
}

// refer adds variables that refer to the keys of the ConfigMap or Secret that --from names.
func (o *env) refer() error {
	if o.Local {
		return errors.New("--from needs the API server, which --local does not ask")
	}

	source := workload.Selection{}
	info, err := source.One(o.factory, []string{o.from})
	if err != nil {
		return fmt.Errorf("--from=%s: %w", o.from, err)
	}
	object := info.Object.(*unstructured.Unstructured)
	kind := workload.Kind(object)
	if kind != (schema.GroupKind{Kind: "ConfigMap"}) && kind != (schema.GroupKind{Kind: "Secret"}) {
		return fmt.Errorf("--from=%s: only a ConfigMap or a Secret can be referred to", o.from)
	}

	data, _, _ := unstructured.NestedMap(object.Object, "data")
	for _, key := range o.keys {
		if _, ok := data[key]; !ok {
			return fmt.Errorf("--from=%s: there is no key %q", o.from, key)
		}
	}

	for _, key := range slices.Sorted(maps.Keys(data)) {
		if len(o.keys) > 0 && !slices.Contains(o.keys, key) {
			continue
		}

		name, by := strings.ToUpper(notInNames.ReplaceAllString(key, "_")),
			corev1.LocalObjectReference{Name: object.GetName()}
		if name != key {
			fmt.Fprintf(o.ErrOut, "Warning: key %s transferred to %s\n", key, name)
		}
		from := &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: by, Key: key},
		}
		if kind.Kind == "Secret" {
			from = &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: by, Key: key},
			}
		}
		o.set = append(o.set, corev1.EnvVar{Name: name, ValueFrom: from})
	}
	return nil
}

var notInNames = regexp.MustCompile("[^a-zA-Z0-9_]")

// edit changes the variables of the selected containers.
func (o *env) edit(object *unstructured.Unstructured) error {
	found, err := matching(object, o.containers)
	if err != nil {
		return err
	}
	for _, c := range found {
		if err := c.SetEnv(o.set, o.remove, o.overwrite); err != nil {
			return fmt.Errorf("container %s: %w", c.Name(), err)
		}
	}
	return nil
}

// print lists the variables as they are, or as they would be with the given changes.
func (o *env) print(named []string) error {
	infos, unread := o.Infos(o.factory, named)
	failed := filled(unread)
	for _, info := range infos {
		object := info.Object.(*unstructured.Unstructured).DeepCopy()
		err := o.edit(object)
		if err == nil {
			err = o.printOne(object)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", change.Name(info), err))
		}
	}
	return utilerrors.NewAggregate(failed)
}

func (o *env) printOne(object *unstructured.Unstructured) error {
	found, err := matching(object, o.containers)
	if err != nil {
		return err
	}

	store, failed := envutil.NewResourceStore(), []error(nil)
	for _, c := range found {
		typed, err := c.Typed()
		if err != nil {
			return err
		}

		fmt.Fprintf(o.Out, "# %s %s, container %s\n", object.GetKind(), object.GetName(), typed.Name)
		for _, variable := range typed.Env {
			value, err := variable.Value, error(nil)
			if variable.ValueFrom != nil && o.resolve {
				value, err = o.value(object, typed, variable.ValueFrom, store)
			}
			if err != nil {
				failed = append(failed,
					fmt.Errorf("error retrieving reference for %s: %w", variable.Name, err))
			}
			if variable.ValueFrom != nil && (err != nil || !o.resolve) {
				fmt.Fprintf(o.Out, "# %s from %s\n", variable.Name,
					envutil.GetEnvVarRefString(variable.ValueFrom))
				continue
			}
			fmt.Fprintf(o.Out, "%s=%s\n", variable.Name, value)
		}
	}

	return utilerrors.NewAggregate(failed)
}

// value resolves the reference of a variable.
func (o *env) value(
	object *unstructured.Unstructured, c *corev1.Container, from *corev1.EnvVarSource,
	store *envutil.ResourceStore,
) (string, error) {
	client, err := o.factory.KubernetesClientSet()
	if err != nil {
		return "", err
	}
	return envutil.GetEnvVarRefValue(client, object.GetNamespace(), store, from, object, c)
}
