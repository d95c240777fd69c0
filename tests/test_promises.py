"""What the README and its pages promise, and the tests that hold framewin to that."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from framewin.forecast.settings import DEFAULT_EPOCHS, LOSSES, TrainSettings
from framewin.model_table import MODELS
from framewin.sources import KINDS, SOURCES
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINES = [line for page in PAGES for line in [*page.read_text().splitlines(), ""]]
TEXT = " ".join(" ".join(LINES).split())
MEASURED = (
    "| way | 100x100x1 |",
    "| layout | 100x100x1: bytes |",
    "| frames | `shuffle` | without |",
    "| windows | frames | bytes | open |",
)
"""Beginnings of tables of numbers, which are measured and not tested."""

OPTIONS = "cli/test_options.py::test_an_option_reaches_what_it_is_for"
SETTINGS = "cli/test_train.py::test_every_setting_is_an_option_with_its_default"
CONTRACT = "helpers/store_contract.py::StoreContract::"

ROWS = {
    # framewin train
    "`--input-frames`, `--predict-frames` |": (
        OPTIONS,
        "windows/test_spec.py::test_window_starts",
        "models/test_models.py::test_untrained_it_repeats_the_last_frame",
    ),
    "`--frame-step`, `--window-stride`, `--lead-gap` |": (
        OPTIONS,
        "windows/test_spec.py::test_windows_equal_plain_slicing",
    ),
    "`--model` |": (SETTINGS, "cli/test_train.py::test_wrong_usage"),
    "`--filters`, `--layers`, `--patch-size`, `--dropout` |": (
        OPTIONS,
        "models/test_models.py::test_the_options_of_a_model_are_stated",
        "cli/test_train.py::test_a_run_is_repeated_by_its_config",
    ),
    "`--loss` |": (
        "forecast/test_losses.py::test_every_setting_has_a_loss",
        "forecast/test_losses.py::test_errors_are_means_per_window",
        "forecast/test_losses.py::test_cross_entropy",
        "forecast/test_losses.py::test_ssim_is_that_of_plain_loops",
    ),
    "`--epochs`, `--minutes` |": (
        "forecast/test_train.py::test_a_run_folder_is_complete",
        "forecast/test_train.py::test_minutes_end_the_training",
    ),
    "`--patience` |": ("forecast/test_train.py::test_patience_ends_the_training",),
    "`--batch-size`, `--devices` |": (
        OPTIONS,
        "forecast/test_runs.py::test_two_devices_train_as_one",
    ),
    "`--shuffle`, `--read-ahead` |": (
        "forecast/test_train.py::test_how_batches_are_read_is_a_setting",
    ),
    "`--learning-rate` |": ("forecast/test_train.py::test_the_learning_rate_rises_and_falls",),
    "`--weight-decay`, `--clip-norm` |": (
        "forecast/test_train.py::test_weights_that_do_not_decay",
        "forecast/test_train.py::test_gradients_are_clipped_by_their_norm",
    ),
    "`--augment` |": (
        "forecast/test_train.py::test_only_training_windows_are_augmented",
        "forecast/test_train.py::test_every_option_of_training_at_once",
    ),
    "`--validation-share`, `--test-share` |": (
        "forecast/test_train.py::test_one_clip_is_split_by_time",
        "forecast/test_train.py::test_without_a_test_part_the_validation_part_is_scored",
    ),
    "`--split` |": ("forecast/test_train.py::test_a_split_that_was_made_before",),
    "`--normalize` |": (
        "forecast/test_train.py::test_values_that_fill_little_of_their_dtype",
        "forecast/test_train.py::test_what_a_model_computes_with",
    ),
    "`--cache` |": ("forecast/test_train.py::test_frames_are_decoded_once_for_a_training",),
    "`--mixed-precision` |": ("forecast/test_train.py::test_every_option_of_training_at_once",),
    "`--deterministic` |": (
        "forecast/test_runs.py::test_a_killed_training_goes_on_to_the_same_weights",
    ),
    "`--checkpoint-minutes` |": (
        OPTIONS,
        "forecast/test_runs.py::test_a_killed_training_goes_on_to_the_same_weights",
    ),
    "`--seed` |": (
        "forecast/test_train.py::test_the_same_seed_trains_the_same_model",
        "models/test_models.py::test_the_same_seed_gives_the_same_weights",
    ),
    "`--next-frame` |": ("cli/test_train.py::test_a_next_frame_model_of_ones_own",),
    "`--out` | `runs/STORE-TIME`": (
        OPTIONS,
        "cli/test_options.py::test_a_run_is_named_by_store_and_time",
    ),
    # Models
    "`convlstm` |": (
        "models/test_models.py::test_untrained_it_repeats_the_last_frame",
        "models/test_models.py::test_a_longer_forecast_begins_like_a_shorter_one",
    ),
    "`convlstm-residual` |": (
        "models/test_models.py::test_a_mix_contains_the_mean_of_the_inputs",
        "models/test_models.py::test_warp_is_bilinear_and_stops_at_the_edges",
    ),
    "`simvp` |": (
        "models/test_models.py::test_a_mix_contains_the_mean_of_the_inputs",
        "models/test_models.py::test_every_input_counts",
    ),
    "`persistence` |": ("forecast/test_train.py::test_persistence_needs_no_training",),
    "`package.module:build` |": (
        "forecast/test_runs.py::test_a_model_of_ones_own",
        "cli/test_train.py::test_a_next_frame_model_of_ones_own",
    ),
    # Scores
    "`mse_pixel`, `mae`, `rmse` |": (
        "test_metrics.py::test_scores_equal_plain_numpy",
        "test_metrics.py::test_definitions_are_told_apart",
    ),
    "`mse_sum` |": ("test_metrics.py::test_definitions_are_told_apart",),
    "`psnr_frame_mean` |": (
        "test_metrics.py::test_definitions_are_told_apart",
        "test_metrics.py::test_perfect_frames_do_not_hide_the_others",
    ),
    "`psnr_of_mean_mse` |": ("test_metrics.py::test_definitions_are_told_apart",),
    "`ssim` |": ("test_metrics.py::test_ssim_is_that_of_scikit_image",),
    "`csi`, `pod`, `far` |": (
        "test_metrics.py::test_thresholds_agree_with_plain_loops",
        "test_metrics.py::test_a_threshold_is_reached_by_its_own_value_in_unit_scale",
    ),
    "`fss` |": (
        "test_metrics.py::test_thresholds_agree_with_plain_loops",
        "test_metrics.py::test_fss_forgives_a_displacement_within_its_window",
    ),
    # Frameworks
    "TensorFlow |": ("adapters/test_tf_data.py::test_no_python_runs_per_batch",),
    "Keras, any backend |": (
        "adapters/test_batches.py::test_keras_fits_from_it",
        "adapters/test_batches.py::test_keras_begins_with_the_start_epoch",
    ),
    "torch |": (
        "adapters/test_batches.py::test_torch_gives_the_same",
        "adapters/test_batches.py::test_torch_workers_change_nothing",
        "adapters/test_batches.py::test_torch_reads_a_dataset_as_it_is",
    ),
    "Grain, JAX |": ("adapters/test_batches.py::test_grain_takes_both",),
    # Kinds of files
    "PNG | `.png`": (
        "sources/test_png.py::test_pixels_are_exact",
        "sources/test_png.py::test_pngsuite_is_exact",
        "sources/test_apng.py::test_real_animations",
        "sources/test_apng.py::test_disposal_and_blending",
    ),
    "JPEG, BMP, WebP, GIF |": (
        "sources/test_images.py::test_jpeg",
        "sources/test_images.py::test_bmp",
        "sources/test_images.py::test_webp",
        "sources/test_images.py::test_gif",
    ),
    "TIFF | `.tif`": (
        "sources/test_images.py::test_tiff",
        "sources/test_images.py::test_stacks_and_single_pages",
        "sources/test_images.py::test_pages_of_several_axes",
    ),
    "PBM, PGM, PPM |": ("sources/test_images.py::test_pnm",),
    "arrays | `.npy`": (
        "sources/test_images.py::test_arrays",
        "sources/test_images.py::test_arrays_of_one_frame_are_frames",
        "faults/test_hostile.py::test_nothing_is_unpickled",
    ),
    "HDF5, netCDF4 |": (
        "arrays/test_arrays.py::test_more_suffixes_of_hdf5",
        "arrays/test_convert_arrays.py::test_an_array_becomes_a_store",
        "arrays/test_convert_arrays.py::test_files_of_one_time_step_are_a_clip",
        "arrays/test_convert_arrays.py::test_names_order_files_of_one_step_without_times",
        "arrays/test_convert_arrays.py::test_a_store_becomes_another",
    ),
    "Zarr | folders of any name": (
        "arrays/test_convert_arrays.py::test_zarr_arrays_in_folders_of_any_name",
    ),
    "videos |": ("sources/test_video.py::test_every_frame_of_every_container",),
    # framewin convert
    "`--include GLOB`, `--exclude GLOB` |": ("sources/test_listing.py::test_globs_choose",),
    "`--frame-regex REGEX` |": (
        "sources/test_listing.py::test_names_by_regular_expression",
        "sources/test_listing.py::test_clips_by_regular_expression",
    ),
    "`--time-format FORMAT` |": ("sources/test_listing.py::test_names_by_regular_expression",),
    "`--kind KIND` |": (
        "sources/test_images.py::test_a_stated_kind_whatever_the_suffix",
        "sources/test_images.py::test_kinds_that_are_wrong",
        "sources/test_video.py::test_videos_of_another_suffix",
    ),
    "`--step STEP` |": (
        "sources/test_listing.py::test_wrong_steps",
        "sources/test_listing.py::test_steps_that_do_not_fit",
        "test_schema.py::test_step_is_the_most_frequent_difference",
    ),
    "`--step-tolerance TOLERANCE` |": (
        "conversion/test_convert.py::test_uneven_steps_within_a_tolerance",
    ),
    "`--stream N` |": (
        "sources/test_video.py::test_several_streams",
        "sources/test_images.py::test_archives_of_several_arrays",
    ),
    "`--array NAME`, `--axes AXES` |": (
        "arrays/test_arrays.py::test_any_axes_dtype_and_chunks",
        "arrays/test_arrays.py::test_a_pattern_takes_each_array_as_a_clip",
        "arrays/test_arrays.py::test_dimension_names_give_the_axes",
        "arrays/test_axes.py::test_axes_that_are_certain",
        "arrays/test_axes.py::test_axes_in_doubt",
    ),
    "`--clip-ids NAME`, `--frame-numbers NAME` |": (
        "arrays/test_convert_arrays.py::test_clips_and_gaps_of_an_array",
        "arrays/test_arrays.py::test_times_number_the_frames",
    ),
    "`--allow-missing-chunks` |": (
        "arrays/test_convert_arrays.py::test_chunks_that_were_left_out_on_purpose",
        "sources/test_images.py::test_sparse_geotiff",
    ),
    # Pixels
    **dict.fromkeys(
        (
            "gray, 1, 2 or 4 bits |",
            "gray, 8 or 16 bits |",
            "gray and alpha |",
            "RGB | 3",
            "RGBA | 4",
            "palette |",
            "a transparent colour (tRNS) |",
        ),
        (
            "sources/test_png.py::test_pixels_are_exact",
            "sources/test_png.py::test_pngsuite_is_exact",
        ),
    ),
    "`--palette index` |": (
        "sources/test_png.py::test_palette_indices",
        "sources/test_images.py::test_bmp_palette",
        "sources/test_images.py::test_tiff_palette",
        "sources/test_images.py::test_indices_of_animations_are_refused",
    ),
    "`--crop TOP:BOTTOM,LEFT:RIGHT` |": ("conversion/test_pixels.py::test_crop",),
    "`--mode rgb` |": ("conversion/test_pixels.py::test_modes_keep_alpha",),
    "`--drop-alpha` |": ("conversion/test_pixels.py::test_opaque_alpha_may_be_dropped",),
    "`--background R,G,B` |": (
        "conversion/test_pixels.py::test_transparent_frames_over_a_background",
        "sources/test_images.py::test_premultiplied_alpha_over_a_background",
    ),
    "`--mode gray` |": (
        "conversion/test_pixels.py::test_gray_by_bt601",
        "conversion/test_pixels.py::test_modes_keep_alpha",
    ),
    "`--size HxW` |": (
        "conversion/test_pixels.py::test_any_area_is_its_mean",
        "conversion/test_pixels.py::test_growing_is_bilinear",
        "conversion/test_pixels.py::test_indices_are_never_mixed",
    ),
    "`--fit stretch`, `pad`, `crop` |": (
        "conversion/test_pixels.py::test_fitting_other_proportions",
    ),
    # Compression
    **dict.fromkeys(
        ("`zstd` | 1 to 22", "`lz4` | none", "`gzip` | 1 to 9"),
        (
            "stores/test_store_hdf5.py::test_codecs_and_their_usual_levels",
            "stores/test_store_hdf5.py::test_levels_that_there_are",
            CONTRACT + "test_other_readers_see_the_frames",
        ),
    ),
}
"""How a row of a table begins -> tests of what it says."""

SENTENCES = {
    # Windows
    "A window never leaves its clip and never crosses a gap.": (
        "conversion/test_convert.py::test_windows_do_not_cross_a_gap",
        "windows/test_spec.py::test_windows_equal_plain_slicing",
    ),
    "The order of epoch *e* is a pure function of the seed and *e*": (
        "windows/test_order.py::test_an_epoch_is_a_permutation",
        "windows/test_order.py::test_orders_stay_as_they_are",
        "windows/test_order.py::test_tensorflow_gives_the_same_order",
    ),
    "`where=` keeps windows, `weights=` draws them with replacement": (
        "windows/test_choose.py::test_where_keeps_what_it_says",
        "windows/test_schedule.py::test_draws_follow_the_weights",
    ),
    "`framewin convert --statistics` records them in the store": (
        "windows/test_statistics.py::test_stores_record_them",
        "windows/test_statistics.py::test_where_reads_no_pixels",
    ),
    "All frames of a window, inputs and targets, change alike": (
        "test_augment.py::test_all_frames_of_a_window_change_alike",
        "test_augment.py::test_batch_size_order_and_resume_change_no_window",
    ),
    "all shards together are one global order": (
        "windows/test_schedule.py::test_all_shards_together_are_the_global_order",
    ),
    "every window once, in an order that is a function of (seed, epoch)": (
        "windows/test_blocks.py::test_an_epoch_goes_from_group_to_group",
    ),
    "give the same windows for the same values": (
        "adapters/test_batches.py::test_tensorflow_gives_the_same",
        "adapters/test_batches.py::test_keras_gives_the_same",
        "adapters/test_batches.py::test_torch_gives_the_same",
    ),
    "each process maps the store by itself, and refuses another one at that path": (
        "test_dataset.py::test_a_pickle_opens_nothing_else",
        "adapters/test_batches.py::test_datasets_are_pickled_small",
    ),
    "`lanes=True` lets row *k* of each batch go on where row *k* of the batch before ended": (
        "windows/test_lanes.py::test_inputs_follow_one_another",
    ),
    # Splits
    "`ds.split` gives parts that share no frame": (
        "windows/test_splits.py::test_by_clip_shares_no_clip",
        "windows/test_splits.py::test_by_time_leaves_an_embargo",
    ),
    "is of the part `train`, whichever part is asked": (
        "test_split_files.py::test_statistics_are_of_the_training_part",
    ),
    # Training
    "with the weights rebuilt into framewin's own architecture and nothing unpickled": (
        "forecast/test_runs.py::test_a_damaged_weights_file",
    ),
    "Nothing that lies in a run folder is executed": (
        "forecast/test_runs.py::test_no_code_of_a_run_folder_runs",
        "forecast/test_runs.py::test_a_run_names_only_what_is_declared",
    ),
    "goes on from the last checkpoint (with `--deterministic` on a CPU to the same bits), also "
    "after the disk was full": (
        "forecast/test_runs.py::test_a_killed_training_goes_on_to_the_same_weights",
        "forecast/test_runs.py::test_a_full_disk_ends_a_training_in_one_line",
    ),
    "`framewin train --config RUN/run.json` repeats a run, with other options if given": (
        "cli/test_train.py::test_a_run_is_repeated_by_its_config",
        "cli/test_options.py::test_a_config_brings_its_store",
    ),
    "A loss that becomes NaN stops the training and names the windows": (
        "forecast/test_train.py::test_a_loss_that_is_no_number_stops",
        "forecast/test_train.py::test_a_frame_that_is_no_number_is_named",
    ),
    "Where one is lost, the others stop with a line": (
        "adapters/test_workers.py::test_a_worker_that_is_lost",
    ),
    "Should no epoch beat the untrained model": (
        "forecast/test_train.py::test_a_model_that_never_beats_the_last_frame_is_not_kept",
    ),
    "refuses such a model and names the layer": (
        "test_testing.py::test_the_keras_example_sees_ahead",
        "cli/test_train.py::test_a_next_frame_model_of_ones_own",
    ),
    # Evaluation and forecasts
    "Windows trained on are refused.": (
        "forecast/test_evaluate.py::test_no_window_is_of_the_training_part",
    ),
    "with a 95 % bootstrap interval over clips": (
        "test_metrics.py::test_the_bootstrap_interval_covers_the_truth",
        "forecast/test_evaluate.py::test_the_interval_is_over_clips_or_blocks",
    ),
    "`--horizon N` feeds forecasts back to go further than trained for": (
        "forecast/test_runs.py::test_a_longer_horizon_is_rolled_out",
        "forecast/test_evaluate.py::test_longer_horizons_and_times",
    ),
    "Where a clip's last input has no data, its forecast has none, either.": (
        "forecast/test_predict.py::test_no_data_stays_no_data",
    ),
    "Nothing is overwritten.": (
        "forecast/test_predict.py::test_refusals",
        "forecast/test_evaluate.py::test_a_folder_that_exists_is_left_alone",
    ),
    # Conversion
    "`--dry-run` reads every file, decodes only a sample and writes nothing": (
        "cli/test_stores.py::test_dry_run_writes_nothing",
        "cli/test_options.py::test_a_dry_run_is_of_the_same_settings",
        "conversion/test_audit.py::test_everything_about_a_clip",
    ),
    "Frames are ordered by the last number in their names, whatever its padding": (
        "sources/test_listing.py::test_numbers_sort_whatever_the_padding",
        "sources/test_listing.py::test_frames_are_in_numeric_order",
    ),
    "What leaves the order in doubt is refused, with the files and an option to try": (
        "sources/test_listing.py::test_doubtful_names_are_refused",
        "sources/test_listing.py::test_more_doubtful_names",
        "sources/test_listing.py::test_negative_numbers",
        "sources/test_listing.py::test_channels_are_not_taken_for_time",
    ),
    "Every difference that is not the step is recorded as a gap": (
        "test_schema.py::test_step_is_the_most_frequent_difference",
        "sources/test_video.py::test_dropped_frames_are_gaps",
        "sources/test_images.py::test_delays_of_animations",
    ),
    "neither gamma, colour profiles nor orientation are applied; `--dry-run` reports them": (
        "sources/test_png.py::test_what_is_noted",
        "sources/test_images.py::test_orientation_is_reported_not_applied",
        "sources/test_images.py::test_what_a_tiff_says_and_is_not_applied",
    ),
    "A video that ends before its header says (frames, duration or bytes) is cut short": (
        "sources/test_video.py::test_a_cut_file",
        "sources/test_video.py::test_a_recording_that_was_cut",
    ),
    "Integers are rounded half up.": ("conversion/test_pixels.py::test_gray_by_bt601",),
    "frames of different shape or dtype (see": (
        "conversion/test_convert.py::test_mixed_shapes_name_the_first_two_that_differ",
        "conversion/test_convert.py::test_mixed_dtypes_inside_a_clip",
    ),
    "a file that is of another kind than its suffix says": (
        "sources/test_images.py::test_what_is_refused",
    ),
    "a frame of more than `--max-pixels` (2^28) by its header": (
        "sources/test_png.py::test_the_usual_limit_of_pixels",
        "sources/test_png.py::test_text_bombs",
        "sources/test_images.py::test_bombs_are_refused_by_their_header",
        "sources/test_video.py::test_a_size_bomb",
    ),
    "an existing DST, a DST inside SRC or SRC inside DST, too little disk space": (
        "conversion/test_convert.py::test_destinations_that_are_refused",
        "conversion/test_convert.py::test_too_little_disk",
    ),
    "With `--on-error gap` they are left out instead: their numbers are gaps": (
        "stores/test_damage.py::test_damage_becomes_gaps",
        "stores/test_damage.py::test_the_command_says_so",
    ),
    "They never become zeros.": (
        "stores/test_damage.py::test_damage_becomes_gaps",
        "sources/test_images.py::test_jpeg_that_ends_early",
        "sources/test_png.py::test_damage_is_refused",
    ),
    "too little memory or a missing package is no damage, and always stops the conversion": (
        "stores/test_damage.py::test_what_the_system_lacks_is_no_damage",
        "stores/test_damage.py::test_filters_that_are_not_installed_are_no_damage",
    ),
    "it appears whole or not at all": (
        "faults/test_failpoints.py::test_an_error_at_any_operation",
        "faults/test_failpoints.py::test_a_kill_at_any_operation",
        "faults/test_power_loss.py::test_nothing_is_lost",
    ),
    "goes on when the same command is given again": (
        "faults/test_resume.py::test_a_stopped_conversion_goes_on",
        "faults/test_resume.py::test_a_signal_says_how_to_go_on",
        "faults/test_full_disk.py::test_a_full_disk",
    ),
    "`--restart` begins anew, and nothing else removes what can go on": (
        "faults/test_resume.py::test_another_plan_is_refused_and_loses_nothing",
        "stores/test_durable.py::test_other_work_does_not_clear_what_can_be_resumed",
    ),
    "`DST.partial/framewin.lock` keeps other processes out": (
        "stores/test_durable.py::test_two_machines_on_one_disk",
        "conversion/test_convert.py::test_two_conversions_of_one_store",
    ),
    "A file that changes while it is converted is an error that names it.": (
        "faults/test_resume.py::test_a_source_that_changes_is_seen",
    ),
    "has the workers of a running Dask cluster decode and write in the place of threads": (
        "conversion/test_cluster.py::test_the_command_on_a_dask_cluster",
        "conversion/test_cluster.py::test_processes_make_the_same_store",
    ),
    # The store
    "Both hold the same arrays under the same names, and other tools read them as they are": (
        "stores/test_store_hdf5.py::test_the_names_are_those_of_the_zarr_store",
        CONTRACT + "test_other_readers_see_the_frames",
    ),
    "Nothing is ever unpickled, no link is followed": (
        "faults/test_hostile.py::test_nothing_is_unpickled",
        "arrays/test_arrays.py::test_only_known_codecs_decode",
        "arrays/test_arrays.py::test_links_out_of_a_file_are_not_followed",
        "faults/test_hostile.py::test_links_out_of_a_store",
    ),
    "only known codecs are decoded, no link leads out of them, and no chunk inflates": (
        "arrays/test_arrays.py::test_only_known_codecs_decode",
        "arrays/test_arrays.py::test_links_lead_out_of_no_zarr_array",
        "arrays/test_arrays.py::test_chunks_inflate_to_what_they_declare",
    ),
    "neither a damaged file nor a stranger's reaches the libraries": (
        "faults/test_hostile.py::test_forged_records",
        "faults/test_hostile.py::test_every_truncation_and_every_lost_file",
    ),
    "so the shard file is the frames from byte 0": (
        "stores/test_store_zarr.py::test_the_shard_is_the_frames_from_byte_0",
    ),
    "in HDF5 a chunked dataset whose chunks are allocated back to back": (
        "stores/test_store_hdf5.py::test_raw_frames_lie_one_behind_the_other",
    ),
    "`--chunk-frames` sets the frames of a chunk: about 1 MiB raw, 64 KiB (at most 16 frames)": (
        "stores/test_store_zarr.py::test_chunks_are_about_a_mebibyte",
    ),
    "checks every byte against the recorded checksums": (
        CONTRACT + "test_any_flipped_byte_is_found",
        CONTRACT + "test_the_levels_of_verify",
        "stores/test_store_zarr.py::test_verify_names_every_kind_of_damage",
    ),
    "`--against SRC` decodes the source again": (
        OPTIONS,
        "arrays/test_convert_arrays.py::test_comparing_with_the_source",
        "stores/test_damage.py::test_what_was_not_compared_is_not_equal",
    ),
    '`cache="memory"` decodes the frames of the clips used once, when opening.': (
        "stores/test_cache.py::test_memory_holds_the_clips_used",
    ),
    "it is refused when the store has changed": (
        "stores/test_cache.py::test_a_changed_store_is_refused",
        "stores/test_cache.py::test_a_changed_array_is_refused",
    ),
    "a mapped file that has become shorter is an error": (
        "test_dataset.py::test_a_mapped_file_that_shrinks_is_an_error",
    ),
    # Object stores
    "every byte verified before DST appears": (
        "stores/test_fetch.py::test_every_byte_is_brought",
        "stores/test_fetch.py::test_damage_is_never_published",
    ),
    "A fetch that was stopped goes on when it is repeated": (
        "stores/test_fetch.py::test_a_fetch_that_was_killed_goes_on",
        "stores/test_fetch.py::test_what_is_there_is_checked",
    ),
    "checks each against its checksum, of raw stores, too": (
        "test_remote.py::test_windows_equal_those_of_the_local_store",
        "test_remote.py::test_damage_names_the_chunk",
    ),
    # Arrays of others, and no data
    "keep their values and dtype": ("arrays/test_arrays.py::test_any_axes_dtype_and_chunks",),
    "framewin never applies them, and refuses to convert files together that differ": (
        "arrays/test_convert_arrays.py::test_packing_is_kept_not_applied",
        "arrays/test_convert_arrays.py::test_files_whose_values_mean_different_things",
    ),
    "A chunk that is missing, and would read as the fill value, is an error": (
        "arrays/test_arrays.py::test_a_missing_chunk_is_never_zeros",
    ),
    "options that would mix it with data": (
        "arrays/test_convert_arrays.py::test_no_data_is_not_mixed_with_data",
    ),
    "Where no data is NaN, inputs and targets get 0 in its place": (
        "stores/test_cache.py::test_nan_as_no_data",
        "stores/test_cache.py::test_weights_of_what_has_data",
    ),
    # Bench
    "Each way is first compared with `ds.batch`; one that gives other pixels is an error.": (
        "bench/test_bench.py::test_other_pixels_are_an_error",
    ),
}
"""Words of the README -> tests of what they say."""


def tables() -> Iterator[list[str]]:
    """The rows of each table, heads first, with single blanks."""
    found: list[str] = []
    for line in LINES:
        if line.startswith("|"):
            found.append(" ".join(line.split()))
        elif found:
            yield found
            found = []


def promised_rows() -> list[str]:
    """Rows that say what framewin does, from their first word on."""
    return [
        row.removeprefix("| ")
        for head, _, *rows in tables()
        if not head.startswith(MEASURED)
        for row in rows
    ]


@cache
def named_in(file: str) -> set[str]:
    """Names of the tests of a file, those of classes behind the name of the class."""
    tree = ast.parse((ROOT / "tests" / file).read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return names | {
        f"{each.name}::{node.name}"
        for each in classes
        for node in each.body
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("text", [*ROWS, *SENTENCES])
def test_a_promise_is_kept_by_tests(text: str) -> None:
    """The words are there, and each test that is named for them exists."""
    assert text in TEXT
    tests = (ROWS | SENTENCES)[text]
    assert tests
    for test in tests:
        file, _, name = test.partition("::")
        assert name in named_in(file), test


def test_every_row_of_a_table_has_its_tests() -> None:
    """One entry each; a new row needs another, and none is left over."""
    rows = promised_rows()
    entries = {row: [text for text in ROWS if row.startswith(text)] for row in rows}
    assert [row for row, found in entries.items() if len(found) != 1] == []
    assert set(ROWS) == {text for found in entries.values() for text in found}


def test_the_tables_of_numbers_are_there() -> None:
    """Else a table that is renamed would be taken for promises, or another be left out."""
    heads = [head for head, *_ in tables()]
    assert all(sum(head.startswith(each) for head in heads) == 1 for each in MEASURED)


def test_suffixes_are_those_that_are_read() -> None:
    """Each suffix stands in the row of its kind, and no other does."""
    [kinds] = [rows for head, _, *rows in tables() if head.startswith("| kind | files |")]
    cells = [row.split("|")[2] for row in kinds]
    listed = [suffix for cell in cells for suffix in re.findall(r"`(\.[\w.]+)`", cell)]
    assert len(listed) == len(set(listed))
    assert {*listed, ".zarr"} == set(SOURCES)
    modules = [{SOURCES[s] for s in re.findall(r"`(\.[\w.]+)`", cell)} for cell in cells]
    assert [len(found) for found in modules if found] == [1] * (len(modules) - 1)


def test_words_are_those_that_are_taken() -> None:
    """Kinds, models and losses: each stands in its table, and nothing else does."""
    rows = promised_rows()
    [kinds] = [row.split("|")[1] for row in rows if row.startswith("`--kind KIND`")]
    assert set(re.findall(r"`(\w+)`", kinds)) == set(KINDS)
    [losses] = [row for row in rows if row.startswith("`--loss`")]
    assert set(re.findall(r"`([\w+]+)`", losses)) == set(LOSSES)
    [models] = [rows for head, _, *rows in tables() if head.startswith("| model |")]
    names = [row.split("`")[1] for row in models]
    assert names == [*MODELS, "package.module:build"]


def test_defaults_of_training_are_those_of_the_table() -> None:
    """Of every setting, in the order of the options of its row."""
    [rows] = [
        rows for head, _, *rows in tables() if head.startswith("| option of `framewin train`")
    ]
    words = {"nothing": None, "no": False, "no limit": None, "`true`": True}
    found: dict[str, object] = {}
    for row in rows:
        options, defaults = (cell.strip() for cell in row.split("|")[1:3])
        names = [name.replace("-", "_") for name in re.findall(r"`--([\w-]+)`", options)]
        given = ["nothing"] * len(names) if defaults == "by model" else defaults.split(", ")
        for name, text in zip(names, given, strict=True):
            found[name] = words[text] if text in words else text.strip("`")
    assert found.pop("out") == "runs/STORE-TIME"
    assert int(str(found.pop("epochs"))) == DEFAULT_EPOCHS
    settings = TrainSettings().record()
    assert settings.pop("epochs") is None
    assert set(found) == set(settings)
    for name, value in settings.items():
        shown = found[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        assert (float(str(shown)) if number else shown) == value, name
